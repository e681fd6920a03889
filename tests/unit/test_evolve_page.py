"""The programs of docs/howto/evolve-a-contract.md do what the page says."""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from filaviva.app import load_app
from filaviva.testing import run_handler
from fixtures.command_line import CommandLine, Result

PAGE = Path(__file__).parents[2] / "docs/howto/evolve-a-contract.md"


def program(name: str, language: str = "python") -> str:
    """The code after the comment that names it."""
    found = re.search(
        rf"<!-- {name} -->\n```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None, name
    return found[1]


@pytest.fixture
def orders(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """The page's module in this release."""
    (tmp_path / "orders.py").write_text(program(request.param), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_app("orders:app")
    yield import_module("orders")
    del sys.modules["orders"]


@pytest.mark.parametrize("orders", ["first"], indirect=True)
async def test_the_first_release_ships_an_order(orders: ModuleType) -> None:
    ran = await run_handler(orders.app, orders.ShipOrder(order=7, address="Rua Augusta 1, Lisboa"))

    assert ran.value == "7 to Rua Augusta 1, Lisboa"


@pytest.mark.parametrize("orders", ["second"], indirect=True)
async def test_the_second_release_passes_the_pages_own_test(orders: ModuleType) -> None:
    scope: dict[str, object] = {}
    exec(program("test"), scope)  # noqa: S102 - the page's program

    await scope["test_an_old_order_is_still_shipped"]()  # type: ignore[operator]
    assert orders.app.reads() == {"order.ship": (1, 2)}


class Project:
    """The page's project in a folder of its own, acted upon as the page says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cli = CommandLine()
        self.code = program("first")
        (root / "orders.py").write_text(self.code, encoding="utf-8")
        (root / "pyproject.toml").write_text(program("project", "toml"), encoding="utf-8")

    def run(self, name: str) -> list[Result]:
        """Run the commands of a block."""
        lines = program(name, "sh").splitlines()
        return [self._cli(*line.split()[1:]) for line in lines]

    def change(self, old: str, new: str) -> None:
        (self.root / "orders.py").write_text(self.code.replace(old, new), encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    made = Project(tmp_path)
    for done in made.run("released"):
        assert done.code == 0, done.err
    return made


def test_the_files_are_those_of_the_page(project: Project) -> None:
    for name in ("schemas/order.ship/1.json", "schemas/order.ship/1.result.json"):
        assert (project.root / "contracts" / name).exists()
        assert (project.root / "contracts" / name.replace("schemas", "golden")).exists()
    assert (project.root / "contracts/released.json").exists()


def test_a_breaking_change_is_told_as_the_page_shows(project: Project) -> None:
    project.change("order: int", "order: str")

    (told,) = project.run("check")

    shown = re.search(
        r"```\n(refused  order.ship v1: order has.*?)```", PAGE.read_text(), re.DOTALL
    )
    assert told.code == 4
    assert shown is not None
    assert shown[1] in told.out


def test_a_next_version_begins_with_the_pages_commands(project: Project) -> None:
    for done in project.run("next"):
        assert done.code == 0, done.err + done.out
    assert "class ShipOrderV2" in (project.root / "orders.py").read_text()
