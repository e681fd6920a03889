"""The servers, services and queues of one benchmark run."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from filaviva.database import migrate
from filaviva.dev import EmbeddedBroker, EmbeddedPostgres

APP = "benchmarks.shop:app"


class Servers:
    """PostgreSQL and RabbitMQ of their own, set up for the benchmark's app."""

    def __init__(self, state: Path, version: str) -> None:
        self.postgres = EmbeddedPostgres(state)
        self.broker = EmbeddedBroker(state / "broker", version=version)  # type: ignore[arg-type]

    def start(self) -> None:
        self.postgres.start()
        self.broker.start()
        migrate(self.postgres.url)
        subprocess.run(
            [sys.executable, "-m", "filaviva.cli", "setup"], env=self.environment(), check=True
        )

    def stop(self) -> None:
        self.broker.stop()
        self.postgres.stop()

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a service on these servers."""
        return {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "FILAVIVA_APP": APP,
            "FILAVIVA_POSTGRES__URL": self.postgres.url,
            "FILAVIVA_BROKER__URL": self.broker.url,
            "FILAVIVA_METRICS__PORT": str(free_port()),
            **more,
        }

    def cpu(self) -> dict[str, float]:
        """CPU seconds that the servers have used so far."""
        return {
            "postgres": tree_cpu(self.postgres.pid),
            "broker": tree_cpu(self.broker.pid),
        }


@contextmanager
def running(version: str) -> Iterator[Servers]:
    """Servers for one run, gone with all they held at its end."""
    with tempfile.TemporaryDirectory(prefix="filaviva-bench-") as state:
        servers = Servers(Path(state), version)
        try:
            servers.start()
            yield servers
        finally:
            servers.stop()


@contextmanager
def service(module: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """One service process, ended as an orchestrator would."""
    process = subprocess.Popen([sys.executable, "-m", module], env=environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def raw(servers: Servers, queue: str, total: int, kind: str) -> dict[str, float]:
    """Drain a queue with the raw loop; give its seconds and CPU."""
    answer = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.raw",
            servers.broker.url, servers.postgres.url, queue, str(total), kind,
        ],
        env=servers.environment(), check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def tree_cpu(pid: int) -> float:
    """CPU seconds of a process and of all that came from it, the ended ones included."""
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for member in members:
        try:
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            continue
    return total


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(
    connection: asyncpg.Connection,
    question: str,
    wanted: int,
    *,
    seconds: float = 180,
    every: float = 0.25,
) -> None:
    """Poll a count until it is reached."""
    deadline = time.monotonic() + seconds
    while (found := await connection.fetchval(question)) < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{question}: found {found}, expected {wanted} within {seconds} s")
        await asyncio.sleep(every)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def show(title: str, rows: Sequence[tuple[str, Any]]) -> None:
    """Print one block of figures."""
    print(f"\n{title}")
    for name, value in rows:
        print(f"  {name:<46} {value}")
