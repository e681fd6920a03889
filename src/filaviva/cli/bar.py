"""A line at the bottom of a terminal that shows how far a job is, while lines go by above it."""

import shutil
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

import simplejson

from filaviva.operations import jobs, shapes

_WIDTH: Final = 30
_ERASE: Final = "\r\x1b[K"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_ASCII: Final = " #"


class Bar:
    """Draw the line again whenever something is new; nothing where there is no terminal."""

    def __init__(self, out: TextIO | None = None, *, live: bool | None = None) -> None:
        self._out = out or sys.stdout
        self.live = self._out.isatty() if live is None else live
        self._plain = "utf" not in (self._out.encoding or "utf-8").lower()

    def draw(self, job: jobs.Job, seconds: float) -> None:
        """Show a job as it is now."""
        if self.live:
            shown = line(job, seconds, plain=self._plain)
            self._write(_ERASE + shown[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        """Make room for a line of another kind."""
        if self.live:
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def line(job: jobs.Job, seconds: float, *, plain: bool = False) -> str:
    """Say in one line how far a job is."""
    parts = [job.state.replace("_", " ")]
    told = None if job.progress is None else shapes.progress(simplejson.loads(job.progress))
    if told is not None:
        parts = [filled(_share(told), plain=plain), told["message"] or _count(told), *parts]
        parts += [f"{told[each]} {each}" for each in ("failed", "canceled") if told[each]]
    if job.attempt > 1:
        parts.append(f"attempt {job.attempt}")
    minutes, rest = divmod(int(seconds), 60)
    words = "  ".join((*parts, f"{minutes}:{rest:02d}"))
    # A handler's message must not move the cursor of whoever watches.
    return "".join(letter if letter.isprintable() else " " for letter in words)


def filled(share: float, *, plain: bool = False) -> str:
    """Draw a bar that is filled by this share."""
    letters = _ASCII if plain else _EIGHTHS
    parts = round(min(max(share, 0.0), 1.0) * _WIDTH * (len(letters) - 1))
    whole, rest = divmod(parts, len(letters) - 1)
    bar = letters[-1] * whole + (letters[rest] if rest else "")
    return f"[{bar:<{_WIDTH}}]"


def _share(told: Mapping[str, Any]) -> float:
    done = told["succeeded"] + told["failed"] + told["canceled"]
    return float(done / told["total"]) if told["total"] else 0.0


def _count(told: Mapping[str, Any]) -> str:
    return f"{told['succeeded']} of {told['total']}"
