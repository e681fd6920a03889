"""Whose wake-ups leave at once, and whose jobs wait for their turn.

Before: jobs are about to be stored for a queue. After: as many as the queue can do with get their
wake-up at once; the others wait in the table `turns`, where the retry-scheduler chooses fairly.
May happen twice: each submission asks once. Being wrong costs a little order, never a job.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS, said
from filaviva.errors import Unreachable
from filaviva.pace import FEWEST, Pace
from filaviva.service import wait

log = structlog.get_logger("filaviva")

_BUSY_PAUSE: Final = 0.25
_IDLE_PAUSE: Final = 1.0
_REMEMBERED_SECONDS: Final = 5.0
_MOST_SLOTS: Final = 500
_SPAN_SECONDS: Final = 10.0

# Skips from queue to queue in the index, however many wait in each.
_STATE: Final = """
WITH RECURSIVE waiting(queue) AS (
    (SELECT queue FROM filaviva.turns ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT turns.queue FROM filaviva.turns AS turns
            WHERE turns.queue > waiting.queue ORDER BY turns.queue LIMIT 1)
    FROM waiting WHERE waiting.queue IS NOT NULL)
SELECT coalesce((SELECT until > clock_timestamp() FROM filaviva.turn_keeper), false),
    ARRAY(SELECT queue FROM waiting WHERE queue IS NOT NULL),
    (SELECT coalesce(jsonb_object_agg(queue, slots), '{}')::text FROM (
        SELECT queue, sum(slots / cardinality(queues)) AS slots
        FROM filaviva.workers AS workers, unnest(queues) AS served(queue)
        WHERE stopped_at IS NULL AND last_seen_at > now() - interval '30 seconds' AND slots > 0
        GROUP BY queue) AS served)
"""


class Depths(Protocol):
    """Look at queues."""

    async def ready(self, queues: Collection[str]) -> Mapping[str, int]:
        """Give the number of ready messages of each; raises `Unreachable`."""
        ...


class Gate(Protocol):
    """Whoever decides about jobs that are queued."""

    def at_once(self, queue: str, jobs: int = 1, *, pause: float = 0.0) -> int:
        """Tell how many of so many jobs of a queue get their wake-up at once.

        With a pause it goes through the delay queues; those that do not wait for their time here.
        """
        ...


class _Open:
    """A gate through which everybody comes."""

    def at_once(self, queue: str, jobs: int = 1, *, pause: float = 0.0) -> int:  # noqa: ARG002 - asked by nobody
        """All of them."""
        return jobs


OPEN: Final[Gate] = _Open()


@dataclass(slots=True)
class Line:
    """One queue as a process that submits to it knows it."""

    left: int = FEWEST
    waits: bool = False  # somebody waits for a turn there already
    used_at: float = 0.0
    pace: Pace = field(default_factory=Pace)
    coming: Counter[int] = field(default_factory=Counter)  # with a pause, by the span it ends in

    def now(self, jobs: int) -> int:
        """Take as many as there is room for; who comes later must not overtake who waits."""
        allowed = 0 if self.waits else min(jobs, self.left)
        self.left -= allowed
        self.pace.sent(allowed)
        self.waits = self.waits or allowed < jobs
        return allowed

    def later(self, jobs: int, now: float, pause: float) -> int:
        """Take for each span no more than the workers do at one go: who knows what waits then?"""
        span = int((now + pause) // _SPAN_SECONDS)
        room = 0 if self.waits or self.left <= 0 else self.pace.fewest - self.coming[span]
        allowed = max(0, min(jobs, room))
        self.coming[span] += allowed
        return allowed

    def forget(self, now: float) -> None:
        """Remember only what is on its way: nobody has looked at the rest for a while."""
        self.left, self.waits, self.pace = FEWEST, False, Pace(fewest=self.pace.fewest)
        present = now // _SPAN_SECONDS
        self.coming = Counter({span: n for span, n in self.coming.items() if span >= present})


class Turns:
    """Decide in memory, from a look at database and broker a few times a second."""

    def __init__(
        self, engine: AsyncEngine, depths: Depths, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._depths = depths
        self._clock = clock
        self._lines: dict[str, Line] = {}
        self._given = False

    def at_once(self, queue: str, jobs: int = 1, *, pause: float = 0.0) -> int:
        """Tell how many of so many jobs of a queue get their wake-up at once."""
        if not self._given:  # nobody would give the turns
            return jobs
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = Line()
        line.used_at = now = self._clock()
        return line.later(jobs, now, pause) if pause > 0 else line.now(jobs)

    async def run(self, stop: asyncio.Event) -> None:
        """Look until stopped."""
        while not stop.is_set():
            await wait(stop, _BUSY_PAUSE if await self.step() else _IDLE_PAUSE)

    async def step(self) -> int:
        """Look once; return at how many queues."""
        try:
            return await self._look()
        except Unreachable as silent:
            log.info("no turns while the broker is unreachable", why=str(silent)[:200])
        except DATABASE_ERRORS as away:
            log.info("no turns while the database is away", why=said(away))
        self._given = False
        return 0

    async def _look(self) -> int:
        used = self._used()
        async with self._engine.connect() as connection:
            self._given, waiting, slots = await _state(connection)
        ready = await self._depths.ready(used) if used and self._given else {}
        for queue, line in used.items():
            line.pace.fewest = max(FEWEST, min(slots.get(queue, 0), _MOST_SLOTS))
            line.left = line.pace.seen(ready.get(queue, 0), self._clock())
            line.waits = queue in waiting
        return len(used)

    def _used(self) -> dict[str, Line]:
        """The queues that are in use: each look at one costs the broker something."""
        now = self._clock()
        since = now - _REMEMBERED_SECONDS
        used = {queue: line for queue, line in self._lines.items() if line.used_at >= since}
        for queue in self._lines.keys() - used.keys():
            line = self._lines[queue]
            line.forget(now)
            if not line.coming:
                del self._lines[queue]
        return used


@dataclass(slots=True)
class Moment:
    """What the database says now: for who makes many jobs at once, and keeps no look of its own."""

    given: bool
    waiting: frozenset[str]
    slots: Mapping[str, int]
    _taken: dict[str, int] = field(default_factory=dict)

    def at_once(self, queue: str, jobs: int = 1, *, pause: float = 0.0) -> int:  # noqa: ARG002 - both come out of the same
        """Tell how many of so many jobs of a queue get their wake-up at once."""
        if not self.given:
            return jobs
        taken = self._taken.get(queue, 0)
        most = max(FEWEST, min(self.slots.get(queue, 0), _MOST_SLOTS))
        allowed = 0 if queue in self.waiting else max(0, min(jobs, most - taken))
        self._taken[queue] = taken + jobs
        return allowed


async def moment(connection: AsyncConnection) -> Moment:
    """Look at this moment, in the caller's transaction."""
    return Moment(*await _state(connection))


async def _state(connection: AsyncConnection) -> tuple[bool, frozenset[str], dict[str, int]]:
    ((given, waiting, slots),) = await fetch(connection, _STATE)
    return given, frozenset(waiting), json.loads(slots)
