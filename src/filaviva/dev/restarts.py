"""Notices what ends and starts it again: at once the first time, later what dies young."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Thread, Timer
from typing import Protocol, TypeAlias

from filaviva.dev.child import Child

_SHORT_LIFE = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Restartable(Protocol):
    """Something with a process that is started again when it ends."""

    @property
    def child(self) -> Child:
        """The process."""

    def launch(self) -> None:
        """Start the process without waiting."""

    def ready(self) -> bool:
        """Tell whether it does its work."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process is no more."""

    what: Restartable
    code: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Due:
    """A process may be started again."""

    what: Restartable


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody asked the run to end."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Source files have changed."""


Happening: TypeAlias = Ended | Due | Stop | Changed


@dataclass(slots=True)
class Restarts:
    """All happenings of a run, in one queue."""

    say: Callable[[str], None]
    _happenings: SimpleQueue[Happening] = field(init=False, default_factory=SimpleQueue)
    _pauses: dict[str, float] = field(init=False, default_factory=dict)

    def launch(self, what: Restartable) -> None:
        """Start it and have its end reported."""
        what.launch()
        began = time.monotonic()

        def report() -> None:
            code = what.child.wait()
            self.tell(Ended(what, code, time.monotonic() - began))

        Thread(target=report, name=f"watch {what.child.name}", daemon=True).start()

    def tell(self, happening: Happening) -> None:
        """Add a happening; safe in threads and in signal handlers."""
        self._happenings.put(happening)

    def next(self, patience: timedelta = timedelta()) -> Happening | None:
        """The next happening; None when there is none within our patience."""
        try:
            return self._happenings.get(timeout=patience.total_seconds())
        except Empty:
            return None

    def plan(self, ended: Ended) -> None:
        """Have it started again."""
        name = ended.what.child.name
        pause = _FIRST_PAUSE
        if ended.seconds < _SHORT_LIFE:
            pause = min(self._pauses.get(name, _FIRST_PAUSE / 2) * 2, _LONGEST_PAUSE)
        self._pauses[name] = pause
        self.say(f"{name} ended ({_cause(ended.code)}); starting it again")
        if pause == _FIRST_PAUSE * 4:  # the third time: by now somebody wants to know why
            self.say(f"{ended.what.child.log} ends with:\n{ended.what.child.tail()}")
        timer = Timer(pause, self.tell, [Due(ended.what)])
        timer.daemon = True
        timer.start()


def _cause(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit {code}"
