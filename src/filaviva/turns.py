"""Whose wake-ups leave at once, and whose jobs wait for their turn.

Before: jobs are about to be stored for a queue. After: as many as the queue can do with get their
wake-up at once; the others wait in the table `turns`, where the retry-scheduler chooses fairly.
May happen twice: each submission asks once. Being wrong costs a little order, never a job.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.errors import Unreachable
from filaviva.pace import FEWEST, Pace
from filaviva.service import wait

log = structlog.get_logger("filaviva")

_BUSY_PAUSE: Final = 0.25
_IDLE_PAUSE: Final = 1.0
_REMEMBERED_SECONDS: Final = 5.0
_MOST_SLOTS: Final = 500

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
    """Whoever decides about new jobs."""

    def at_once(self, queue: str, jobs: int = 1) -> int:
        """Tell how many of so many new jobs of a queue get their wake-up at once."""
        ...


@dataclass(slots=True)
class Line:
    """One queue as a process that submits to it knows it."""

    left: int = FEWEST
    waits: bool = False  # somebody waits for a turn there already
    used_at: float = 0.0
    pace: Pace = field(default_factory=Pace)


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

    def at_once(self, queue: str, jobs: int = 1) -> int:
        """Tell how many of so many new jobs of a queue get their wake-up at once."""
        if not self._given:  # nobody would give the turns
            return jobs
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = Line()
        line.used_at = self._clock()
        allowed = 0 if line.waits else min(jobs, line.left)
        line.left -= allowed
        line.pace.sent(allowed)
        # Who comes later must not overtake who waits.
        line.waits = line.waits or allowed < jobs
        return allowed

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
            log.info("no turns while the database is away", why=str(away)[:200])
        self._given = False
        return 0

    async def _look(self) -> int:
        since = self._clock() - _REMEMBERED_SECONDS
        self._lines = {q: line for q, line in self._lines.items() if line.used_at >= since}
        async with self._engine.connect() as connection:
            self._given, waiting, slots = await _state(connection)
        ready = await self._depths.ready(self._lines) if self._lines and self._given else {}
        for queue, line in self._lines.items():
            line.pace.fewest = max(FEWEST, min(slots.get(queue, 0), _MOST_SLOTS))
            line.left = line.pace.seen(ready.get(queue, 0), self._clock())
            line.waits = queue in waiting
        return len(self._lines)


@dataclass(slots=True)
class Moment:
    """What the database says now: for who makes many jobs at once, and keeps no look of its own."""

    given: bool
    waiting: frozenset[str]
    slots: Mapping[str, int]
    _taken: dict[str, int] = field(default_factory=dict)

    def at_once(self, queue: str, jobs: int = 1) -> int:
        """Tell how many of so many new jobs of a queue get their wake-up at once."""
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


# A job that was canceled in line, and is wanted again, is there already under an older epoch.
_LINE_UP: Final = """
INSERT INTO filaviva.turns (queue, tenant, priority, job_id, epoch)
SELECT queue, tenant, priority, id, epoch FROM filaviva.jobs WHERE id = ANY($1::uuid[])
ORDER BY id
ON CONFLICT (queue, tenant, priority, job_id) DO UPDATE SET epoch = excluded.epoch
"""


async def line_up(connection: AsyncConnection, job_ids: Sequence[UUID]) -> None:
    """Have these queued jobs wait for their turn, in the transaction that queued them."""
    if job_ids:
        await fetch(connection, _LINE_UP, (list(job_ids),))


async def _state(connection: AsyncConnection) -> tuple[bool, frozenset[str], dict[str, int]]:
    ((given, waiting, slots),) = await fetch(connection, _STATE)
    return given, frozenset(waiting), json.loads(slots)
