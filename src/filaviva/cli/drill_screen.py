"""What a person sees of a drill: lines as things happen, a live line below them on a terminal."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import Final, TextIO

from filaviva.cli.bar import filled
from filaviva.cli.output import printable
from filaviva.drilling.facts import Fact
from filaviva.drilling.journey import Look
from filaviva.drilling.prometheus import ALERT

_ERASE: Final = "\r\x1b[K"
# Where nothing can be drawn again, a line now and then is enough.
_SELDOM_SECONDS: Final = 15.0


class DrillScreen:
    """Write to a terminal or to a log."""

    def __init__(self, out: TextIO | None = None, *, live: bool | None = None) -> None:
        self._out = out or sys.stdout
        self._live = self._out.isatty() if live is None else live
        self._plain = "utf" not in (self._out.encoding or "utf-8").lower()
        self._began = time.monotonic()
        self._shown = ("", 0.0)
        self._fires = False

    def say(self, text: str) -> None:
        """Show one fact, with the time since the beginning."""
        self._write((_ERASE if self._live else "") + f"{self._clock()}  {printable(text)}\n")

    def show(self, look: Look) -> None:
        """Show how it stands: drawn again, or a line where a phase begins and now and then."""
        if look.fires != self._fires:
            self._fires = look.fires
            self.say(f"{ALERT} {'fires' if look.fires else 'is over'}")
        if self._live:
            share = look.seconds / look.total if look.total else 1.0
            bar = filled(share, plain=self._plain)
            shown = f"{self._clock()}  {bar} {_words(look)}"
            self._write(_ERASE + shown[: shutil.get_terminal_size().columns - 1])
            return
        phase, at = self._shown
        now = time.monotonic()
        if look.phase != phase or now - at >= _SELDOM_SECONDS:
            self._shown = (look.phase, now)
            self.say(_words(look))

    def facts(self, facts: Sequence[Fact]) -> None:
        """Show what was checked, and how it came out."""
        self._write(_ERASE if self._live else "")
        for fact in facts:
            self._write(f"{'ok' if fact.holds else 'NO':<4}{fact.name}\n")
            self._write(f"    found {printable(fact.found)}; expected {fact.expected}\n")
            if not fact.holds and fact.next_step:
                self._write(f"    next: {fact.next_step}\n")

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02d}"

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _words(look: Look) -> str:
    states = ", ".join(f"{many} {state}" for state, many in sorted(look.states.items()))
    fires = ", the alert fires" if look.fires else ""
    return f"{look.phase} ({look.seconds:.0f} of at most {look.total:.0f} s{fires}): {states}"
