"""Tell waiting processes which jobs changed: one coalesced NOTIFY, never in the hot transactions.

NOTIFY takes a lock at commit that all notifying transactions share, so it has its own, at most
one each 50 ms. It is a hint: who waits also polls.
"""

import asyncio
from collections.abc import Iterable
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said
from filaviva.service import first_of, wait

CHANNEL = "filaviva_jobs"
CANCELS = "filaviva_cancels"  # "job:fence" of what its worker is to stop
EVERYTHING = "*"
_MOST_BYTES = 7999  # that a payload holds

log = structlog.get_logger("filaviva")


async def send(connection: AsyncConnection, channel: str, words: Iterable[str]) -> None:
    """Notify with the caller's commit; too many words are told as `EVERYTHING`."""
    payload = ",".join(words)
    if len(payload) > _MOST_BYTES:
        payload = EVERYTHING
    if payload:
        await connection.exec_driver_sql("SELECT pg_notify($1, $2)", (channel, payload))


class Notifier:
    """Collect ids of changed jobs and send them on."""

    def __init__(self, engine: AsyncEngine, *, every: float = 0.05) -> None:
        self._engine = engine
        self._every = every
        self._changed: set[UUID] = set()
        self._some = asyncio.Event()

    def changed(self, job_ids: Iterable[UUID]) -> None:
        """Remember that these jobs changed (after the commit that changed them)."""
        self._changed.update(job_ids)
        if self._changed:
            self._some.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send what has been collected, until stopped; then send the rest."""
        while not stop.is_set():
            await first_of(self._some, stop)
            await self.step()
            await wait(stop, self._every)
        await self.step()

    async def step(self) -> int:
        """Send one notification; return how many jobs it named."""
        ids, self._changed = self._changed, set()
        self._some.clear()
        if not ids:
            return 0
        try:
            async with self._engine.connect() as connection:
                autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
                await send(autocommit, CHANNEL, map(str, ids))
        except DATABASE_ERRORS as unreachable:
            log.info("a change was not announced; those who wait will poll", why=said(unreachable))
        return len(ids)
