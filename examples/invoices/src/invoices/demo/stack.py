"""Start what the demonstration needs, and stop it whatever happens."""

import asyncio
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filaviva.dev.detached import detached, stop

from invoices.demo.plan import LEASE, MODEL_TIMEOUT


class DemoFailed(RuntimeError):
    """The demonstration cannot go on; the message is for the person who watches."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack: its state folder, where dev.json says what is where just now."""

    state: Path

    def read(self) -> dict[str, Any]:
        """Return dev.json as it is now: pids change when a process is started again."""
        content: dict[str, Any] = json.loads((self.state / "dev.json").read_text())
        return content

    def pids(self) -> set[int]:
        """Return every process of the stack."""
        return {pid for pids in self.read()["pids"].values() for pid in pids}


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Make sure that two demonstrations do not share a folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(f"another demonstration is running in {folder}") from None
        yield


@asynccontextmanager
async def sandbox(folder: Path) -> AsyncIterator[str]:
    """Run the sandbox provider as its own process; yield its address."""
    state = folder / "sandbox.json"
    with (folder / "sandbox.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "invoices.sandbox", "--state", str(state), "--attached"),
            # It ends when this end of the pipe closes, even if we are killed.
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield await _announced(state, process)
    finally:
        await _end(process)


@asynccontextmanager
async def stack(folder: Path, *, webhook: str, provider: str) -> AsyncIterator[Stack]:
    """Run the embedded stack with two workers; leave nothing running behind."""
    added = {
        "FILAVIVA_SLACK__WEBHOOK_URL": webhook,
        "FILAVIVA_WORKER__LEASE_SECONDS": str(LEASE),
        "INVOICES_MODEL_TIMEOUT": str(MODEL_TIMEOUT),
        "OPENAI_API_KEY": "sandbox",
        "OPENAI_BASE_URL": f"{provider}/v1",
    }
    async with detached(folder, app="invoices.app:app", workers=2, added=added):
        yield Stack(folder)


async def fresh(folder: Path) -> None:
    """Empty the folder; what a killed demonstration left running in it is stopped first."""
    if (folder / "dev.json").exists():
        await stop(folder)
    _empty(folder)


def alive(pid: int) -> bool:
    """Return whether the process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def belonging_to(folder: Path) -> set[int]:
    """Return the processes whose command line names the folder: supervisor, servers, sandbox."""
    named = str(folder).encode()
    return {pid for pid in _pids() if pid != os.getpid() and named in _command_line(pid)}


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


async def _announced(state: Path, process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(30):
        while (place := _read(state)) is None:
            if process.returncode is not None:
                raise DemoFailed(f"the sandbox ended: {_tail(state.with_suffix('.log'))}")
            await asyncio.sleep(0.05)
    return str(place["url"])


def _read(state: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(state.read_text())
    except FileNotFoundError:
        return None
    return content


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


async def _end(process: asyncio.subprocess.Process, by: signal.Signals = signal.SIGTERM) -> None:
    if process.returncode is not None:
        return
    process.send_signal(by)
    try:
        async with asyncio.timeout(10):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
