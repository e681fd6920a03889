"""The largest of what was measured lately, in two numbers and not in a list."""

import time
from collections.abc import Callable


class Worst:
    """Remember the largest value of the last hour (or so long); after two it is forgotten."""

    def __init__(
        self, *, seconds: float = 3600, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since = clock()
        self._now = self._before = 0.0

    def saw(self, value: float) -> None:
        """Take one measurement."""
        self._turn()
        self._now = max(self._now, value)

    @property
    def value(self) -> float:
        """The largest; 0 when nothing was measured."""
        self._turn()
        return max(self._now, self._before)

    def _turn(self) -> None:
        age = self._clock() - self._since
        if age < self._seconds:
            return
        # After two silent hours neither number is of use.
        self._before = self._now if age < 2 * self._seconds else 0.0
        self._now = 0.0
        self._since += self._seconds * (age // self._seconds)
