"""One process of the stack: started by us, recorded, logged, and ended by us."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from filaviva.dev.identity import Identity


class Child:
    """A process that outlives neither our stop nor, once we are back, our death."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        state: Path,
        env: Mapping[str, str] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.command = [str(word) for word in command]
        self.log = state / "logs" / f"{name}.log"
        self._record = state / "pids" / f"{name}.json"
        self._env = env
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0  # where in the log what this process writes begins

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._running.pid

    @property
    def alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process in a session of its own, so that Ctrl-C reaches only us."""
        if self.alive:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._began = log.tell()
            self._process = subprocess.Popen(
                self.command,
                env=None if self._env is None else dict(self._env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        Identity.of(self._process.pid).write(self._record)

    def wait(self, patience: timedelta | None = None) -> int:
        """Wait until the process has ended; return its exit code."""
        return self._running.wait(None if patience is None else patience.total_seconds())

    def stop(self, patience: timedelta = timedelta(seconds=20)) -> None:
        """Ask the process to end; kill it when it does not within our patience."""
        if self.alive:
            self.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._running.wait(patience.total_seconds())
        self.kill()

    def terminate(self) -> None:
        """Ask the process to end; do not wait for it."""
        if self.alive:
            self._running.send_signal(self._stop_signal)

    def kill(self) -> None:
        """End the process and its process group with SIGKILL, at once."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._record.unlink(missing_ok=True)

    def tail(self, lines: int = 8) -> str:
        """The last lines that the process wrote, and none of those before it."""
        return tail(self.log, since=self._began, lines=lines)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process


def tail(log: Path, *, since: int = 0, lines: int) -> str:
    """The last lines of a log, of what was written after its first `since` bytes."""
    try:
        written = log.read_bytes()[since:]
    except OSError:
        return ""
    return "\n".join(written.decode(errors="replace").splitlines()[-lines:])


def recover(state: Path) -> list[str]:
    """End what a killed run has left on this state; return the names.

    With SIGKILL: everything here survives it by design, and a polite stop could last minutes.
    """
    ended = []
    for record in sorted((state / "pids").glob("*.json"), key=_servers_last):
        identity = Identity.read(record)
        if identity is not None and identity.alive:
            identity.kill()
            ended.append(record.stem)
        record.unlink(missing_ok=True)
    return ended


def _servers_last(record: Path) -> tuple[int, str]:
    servers = ("broker", "epmd", "postgres")
    return (servers.index(record.stem) + 1 if record.stem in servers else 0, record.stem)
