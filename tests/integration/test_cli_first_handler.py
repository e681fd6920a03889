"""The first handler of the README works as it stands there, on real servers."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import asyncpg
import pytest

from fixtures.journey import free_port
from fixtures.waiting import until

README = Path(__file__).parents[2] / "README.md"


class Shop:
    """A folder with the README's `shop.py`, and the services that its jobs need."""

    def __init__(self, folder: Path, database: str, vhost: str) -> None:
        self.folder = folder
        self.database = database
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("FILAVIVA_")},
            "FILAVIVA_APP": "shop:app",
            "FILAVIVA_POSTGRES__URL": database,
            "FILAVIVA_BROKER__URL": vhost,
        }

    def filaviva(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end."""
        return subprocess.run(
            self._command(*words), env=self._environment, cwd=self.folder, text=True,
            capture_output=True, timeout=90, check=False,
        )  # fmt: skip

    def start(self, service: str) -> None:
        """Start a service."""
        ports = {
            "FILAVIVA_METRICS__PORT": str(free_port()),
            "FILAVIVA_HTTP__PORT": str(free_port()),
        }
        with (self.folder / f"{service}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    self._command("run", service), env={**self._environment, **ports},
                    cwd=self.folder, stdout=log, stderr=log,
                )
            )  # fmt: skip

    def end(self) -> list[int]:
        """Ask every service to end; give their exit codes."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        return [process.wait(60) for process in self._processes]

    @staticmethod
    def _command(*words: str) -> list[str]:
        return [sys.executable, "-m", "filaviva.cli", *words]


@pytest.fixture
def shop(tmp_path: Path, empty_database: str, vhost: str) -> Iterator[Shop]:
    (code,) = re.findall(r"```python\n(# shop\.py\n.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "shop.py").write_text(code)
    shop = Shop(tmp_path, empty_database, vhost)
    yield shop
    shop.end()


@pytest.mark.timeout(300)  # five processes start one after the other
async def test_the_first_handler_has_its_effect_and_its_failure_is_a_dead_letter(
    shop: Shop,
) -> None:
    set_up = shop.filaviva("setup")
    assert set_up.returncode == 0, set_up.stderr
    for service in ("worker", "retry-scheduler", "dlq-handler"):
        shop.start(service)

    good, bad = (
        shop.filaviva("jobs", "submit", "receipt.send", "--data", data, "--wait")
        for data in _data()
    )
    letters = await until(lambda: asyncio.to_thread(_letters, shop), seconds=30, every=0.5)

    assert good.returncode == 0, good.stderr
    assert good.stdout.splitlines()[-1] == '"R-17"'
    assert await _receipts(shop.database) == [("R-17", Decimal("9.90"))]
    assert bad.returncode == 1
    assert "nothing was paid" in bad.stdout
    assert [letter["reason"] for letter in letters] == ["terminal"]


def _letters(shop: Shop) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(shop.filaviva("dlq", "list", "--json").stdout)["items"]
    return found


async def _receipts(database: str) -> list[tuple[str, Decimal]]:
    connection = await asyncpg.connect(database)
    try:
        rows = await connection.fetch("SELECT number, total FROM shop.receipts")
    finally:
        await connection.close()
    return [(row["number"], row["total"]) for row in rows]


def _data() -> list[str]:
    """Read what the README submits."""
    found = re.findall(r"jobs submit receipt\.send --data '(.*?)' --wait", README.read_text())
    assert len(found) == 2
    return found
