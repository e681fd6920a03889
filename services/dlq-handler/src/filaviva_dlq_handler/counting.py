"""Count the open letters for the metrics, now and then."""

import asyncio

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.service import wait
from filaviva.telemetry.metrics import Metrics

log = structlog.get_logger("filaviva")

_OPEN = """
SELECT coalesce(type, '') AS type, reason, count(*) AS letters FROM filaviva.dead_letters
WHERE status IN ('open', 'replaying') GROUP BY 1, 2
"""


class Counting:
    """Keep `filaviva_dead_letters_open` true within some seconds."""

    def __init__(self, engine: AsyncEngine, metrics: Metrics, *, every: float = 5) -> None:
        self._engine = engine
        self._gauge = metrics.dead_letters_open
        self._every = every
        self._shown: set[tuple[str, str]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Count until stopped."""
        while not stop.is_set():
            try:
                await self.step()
            except DATABASE_ERRORS as away:
                log.info("open letters not counted", why=str(away)[:200])
            await wait(stop, self._every)

    async def step(self) -> int:
        """Count once; return how many letters are open."""
        async with self._engine.connect() as connection:
            rows = (await connection.exec_driver_sql(_OPEN)).all()
        counts: dict[tuple[str, str], int] = {(row.type, row.reason): row.letters for row in rows}
        for labels in self._shown | counts.keys():
            self._gauge.labels(*labels).set(counts.get(labels, 0))
        self._shown |= counts.keys()
        return sum(counts.values())
