"""Back-pressure: refuse new jobs while too many wake-ups wait for the broker.

A broker that is down stops nobody from submitting: jobs are kept here until it is back. But a
backlog without end would only move the outage into the database.
"""

import asyncio

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said
from filaviva.errors import Rejected
from filaviva.service import wait

# Counting stops at the limit: the cost does not grow with the backlog.
_COUNT = "SELECT count(*) FROM (SELECT FROM filaviva.outbox LIMIT $1) AS pending"

log = structlog.get_logger("filaviva")


class Pressure:
    """How many messages wait to be published, looked up once a second."""

    def __init__(self, engine: AsyncEngine, *, limit: int, every_seconds: float = 1.0) -> None:
        self._engine = engine
        self._limit = limit
        self._every = every_seconds
        self._pending = 0

    def check(self) -> None:
        """Refuse (503) while the limit is reached."""
        if self._pending >= self._limit:
            detail = f"{self._limit} messages wait for the broker; new jobs are accepted again soon"
            raise Rejected("overloaded", detail, status=503, retry_after=5)

    async def run(self, stop: asyncio.Event) -> None:
        """Look until stopped."""
        while not stop.is_set():
            await self.step()
            await wait(stop, self._every)

    async def step(self) -> int:
        """Look once; return how many wait."""
        try:
            async with self._engine.connect() as connection:
                found = await connection.exec_driver_sql(_COUNT, (self._limit,))
                self._pending = int(found.scalar_one())
        except DATABASE_ERRORS as away:
            # Without the database every submission is refused by itself.
            log.warning("the outbox cannot be counted", why=said(away))
        return self._pending
