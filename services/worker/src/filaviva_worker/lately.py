"""What this worker did within the last minute, for whoever looks at the workers.

Counted here and told with the heartbeat: nobody has to look through the jobs to find a rate.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

# queue, type, and what was counted
Counts: TypeAlias = dict[tuple[str, str, str], float]

WINDOW: Final = 60.0


class Tally:
    """The counts of one queue's work; they only grow."""

    def __init__(self, counts: Counts | None = None, queue: str = "") -> None:
        self._counts: Counts = defaultdict(float) if counts is None else counts
        self._queue = queue

    def started(self, job_type: str) -> None:
        """An attempt has begun."""
        self._counts[self._queue, job_type, "started"] += 1

    def ended(self, job_type: str, outcome: str, spent: float) -> None:
        """An attempt is recorded, and what it has cost."""
        self._counts[self._queue, job_type, outcome] += 1
        if spent:
            self._counts[self._queue, job_type, "costUsd"] += spent


class Lately:
    """All tallies of a process, and how they stood within the last minute."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counts = defaultdict(float)
        self._stood: deque[tuple[float, Counts]] = deque([(clock(), {})])

    def of(self, queue: str) -> Tally:
        """Give the tally of one queue."""
        return Tally(self._counts, queue)

    def shown(self) -> Mapping[str, Any]:
        """Give what has grown within the window, and how long that is in seconds.

        Asked by the heartbeat's thread: to copy a dict is one step for the interpreter.
        """
        now, counts = self._clock(), dict(self._counts)
        self._stood.append((now, counts))
        while len(self._stood) > 2 and self._stood[1][0] <= now - WINDOW:  # noqa: PLR2004 - a pair
            self._stood.popleft()
        since, before = self._stood[0]
        work: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for (queue, job_type, what), count in counts.items():
            grown = count - before.get((queue, job_type, what), 0.0)
            if grown:
                work[queue, job_type][what] = round(grown, 6)
        return {
            "seconds": round(now - since, 3),
            "work": [
                {"queue": queue, "type": job_type, **grown}
                for (queue, job_type), grown in sorted(work.items())
            ],
        }
