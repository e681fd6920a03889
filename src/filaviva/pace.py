"""How many wake-ups a queue should hold: enough that it never runs dry, few enough to jump.

A short queue is what lets a fair choice be felt: what lies on the broker comes first, whoever
it belongs to. So there should be about half a second of work, however fast or slow the work is.
"""

from dataclasses import dataclass, field

FEWEST = 4
MOST = 5_000
_AHEAD_SECONDS = 0.4
_TURNS = 3  # work for so many looks, where those are far apart,
_FARTHEST_SECONDS = 1.5  # and not after a time without any
_FORGET = 0.3  # of what was known of the rate, at each look


@dataclass(slots=True)
class Pace:
    """What is known of one queue, from looking at it now and then."""

    fewest: int = FEWEST
    goal: float = 0.0
    _rate: float = 0.0
    _there: int = 0
    _sent: int = 0
    _at: float | None = field(default=None)

    def sent(self, wake_ups: int) -> None:
        """Remember that so many wake-ups were sent since the last look."""
        self._sent += wake_ups

    def seen(self, there: int, now: float) -> int:
        """Take in that so many wake-ups are there now; say how many more should be."""
        seconds = 0.0 if self._at is None else max(now - self._at, 1e-3)
        taken = max(0, self._there + self._sent - there)
        rate = taken / seconds if seconds else 0.0
        # Faster is believed at once, slower by and by: a pause of the workers is no new rate.
        self._rate = max(rate, (1 - _FORGET) * self._rate + _FORGET * rate)
        ahead = min(max(_AHEAD_SECONDS, _TURNS * seconds), _FARTHEST_SECONDS)
        wanted = max(float(self.fewest), self._rate * ahead)
        if there == 0 and self._sent:
            # All of it was taken, so more would have been: how much more, only trying tells.
            wanted = max(wanted, 2 * self.goal)
        self.goal = min(wanted, float(MOST))
        self._there, self._sent, self._at = there, 0, now
        return max(0, int(self.goal) - there)
