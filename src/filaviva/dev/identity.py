"""A process told apart from a later one with the same number."""

import json
import os
import select
import signal
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from filaviva.atomic import write_json


@dataclass(frozen=True, slots=True)
class Identity:
    """A pid and the moment its process began."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """Name the process that runs under this pid now."""
        return cls(pid, _began(pid) or "")

    @classmethod
    def read(cls, record: Path) -> Self | None:
        """Read a recorded identity; None when there is none or it is unreadable."""
        try:
            return cls(**json.loads(record.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, record: Path) -> None:
        """Record the identity so that a later run can end what this one left."""
        write_json(record, asdict(self))

    @property
    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        return bool(self.began) and _began(self.pid) == self.began

    def terminate(self) -> None:
        """Ask the process to end, if it is still the same one."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self, patience: timedelta = timedelta(seconds=10)) -> None:
        """End the process, and what it leads, if it is still the same one."""
        if not self.alive:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
            os.killpg(self.pid, signal.SIGKILL)
        self.wait_gone(patience)

    def wait_gone(self, patience: timedelta) -> bool:
        """Wait until the process is gone; False when it outlives our patience."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive:
                return True
            ready, _, _ = select.select([handle], [], [], patience.total_seconds())
            return bool(ready)
        finally:
            os.close(handle)


def _began(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _began_by_ps(pid)
    # The name in brackets may hold spaces; the state is the first field after it,
    # the start time (ticks since boot) the twentieth.
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


def _began_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
