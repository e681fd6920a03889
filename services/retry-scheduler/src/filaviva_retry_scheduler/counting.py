"""Count what waits, and since when, for the metrics: one process for all, now and then.

The counting process holds a lock of its session; when it is gone another one finds the lock free.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said
from filaviva.service import wait
from filaviva.telemetry.figures import Values
from filaviva.telemetry.metrics import Metrics
from filaviva_retry_scheduler import figures

log = structlog.get_logger("filaviva")

_TYPES: Final = "SELECT DISTINCT type FROM filaviva.contracts WHERE queue IS NOT NULL ORDER BY type"
LEAD: Final = "SELECT pg_try_advisory_lock(x'66696c62'::int)"
# A host that is gone says no good-bye: without this its session would keep the lock for hours.
_SILENCE: Final = "SET idle_session_timeout = {}"
# Counting a large backlog takes a while: it may have one part in twenty of one core.
_REST: Final = 20.0
# Figures that are older than two minutes are not shown, so they are counted again before.
_SELDOM: Final = 60.0


class Counting:
    """Keep the figures true within some seconds, if it is us who counts."""

    def __init__(
        self, engine: AsyncEngine, metrics: Metrics, *, every: float = 5, silence: float = 150
    ) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._metrics = metrics
        self._every = every
        self._silence = round(silence * 1000)
        self._took = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Count until stopped; while the database is away there are no figures."""
        while not stop.is_set():
            try:
                async with self._engine.connect() as connection:
                    await self._counted(connection, stop)
            except DATABASE_ERRORS as away:
                log.info("nobody counts what waits", why=said(away))
            self._metrics.figures.forget()
            await wait(stop, self._every)

    async def step(self) -> int:
        """Count once, whoever else does; return how many jobs have not ended."""
        async with self._engine.connect() as connection:
            return await self._count(connection)

    async def _counted(self, connection: AsyncConnection, stop: asyncio.Event) -> None:
        self._know(await _types(connection))
        if not (await connection.exec_driver_sql(LEAD)).scalar():
            return
        try:
            await connection.exec_driver_sql(_SILENCE.format(self._silence))
            while not stop.is_set():
                await self._count(connection)
                await wait(stop, min(max(self._every, self._took * _REST), _SELDOM))
        finally:
            # The lock ends with its session, which must not go back to the pool; whether the server
            # still answers makes no difference.
            await connection.invalidate()

    def _know(self, types: Sequence[str]) -> None:
        self._metrics.know("retry-scheduler", dict.fromkeys(types, ()))

    async def _count(self, connection: AsyncConnection) -> int:
        began = time.monotonic()
        types = await _types(connection)
        self._know(types)
        counted: Mapping[str, Values] = await figures.count(connection, types)
        self._metrics.figures.tell(counted)
        self._took = time.monotonic() - began
        return int(sum(counted["jobs"].values()))


async def _types(connection: AsyncConnection) -> Sequence[str]:
    return (await connection.exec_driver_sql(_TYPES)).scalars().all()
