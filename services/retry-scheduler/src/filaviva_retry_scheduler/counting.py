"""Count who waits for a turn, and for how long, for the metrics, now and then."""

import asyncio

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.service import wait
from filaviva.telemetry.metrics import Metrics
from filaviva_retry_scheduler import waiting
from filaviva_retry_scheduler.shares import CLASSES, class_of
from filaviva_retry_scheduler.waiting import START

log = structlog.get_logger("filaviva")

_WAITING = "SELECT priority, count(*) FROM filaviva.turns GROUP BY priority"
_UPCOMING = "SELECT count(*) FROM filaviva.upcoming"
_MOST_LINES = 10_000


class Counting:
    """Keep the metrics of the turns true within some seconds."""

    def __init__(self, engine: AsyncEngine, metrics: Metrics, *, every: float = 5) -> None:
        self._engine = engine
        self._metrics = metrics
        self._every = every

    async def run(self, stop: asyncio.Event) -> None:
        """Count until stopped."""
        while not stop.is_set():
            try:
                await self.step()
            except DATABASE_ERRORS as away:
                log.info("those who wait for a turn are not counted", why=str(away)[:200])
            await wait(stop, self._every)

    async def step(self) -> int:
        """Count once; return how many wait for a turn."""
        async with self._engine.connect() as connection:
            counts = await _counts(connection)
            oldest = await _oldest(connection)
            ((upcoming,),) = await fetch(connection, _UPCOMING)
        for name in CLASSES:
            self._metrics.turns_waiting.labels(name).set(counts[name])
            self._metrics.turns_oldest.labels(name).set(oldest[name])
        self._metrics.turns_upcoming.set(upcoming)
        return sum(counts.values())


async def _counts(connection: AsyncConnection) -> dict[str, int]:
    counts = dict.fromkeys(CLASSES, 0)
    for priority, jobs in await fetch(connection, _WAITING):
        counts[class_of(priority)] += jobs
    return counts


async def _oldest(connection: AsyncConnection) -> dict[str, float]:
    """Since when the first of each class is due; 0 where nobody waits."""
    oldest = dict.fromkeys(CLASSES, 0.0)
    for priority, since in await waiting.firsts(connection, after=START, limit=_MOST_LINES):
        name = class_of(priority)
        oldest[name] = min(since, oldest[name] or since)
    return oldest
