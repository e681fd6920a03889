"""Keep a small table in memory: read again when its change is told, and now and then.

A notification is a hint; the reading in between is the promise.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said
from filaviva.listening import Listening
from filaviva.service import first_of

log = structlog.get_logger("filaviva")


class Refreshing:
    """Call `read` on a connection at once, after each notification, and every `poll` seconds."""

    def __init__(
        self,
        engine: AsyncEngine,
        channel: str,
        read: Callable[[AsyncConnection], Awaitable[None]],
        *,
        poll: float,
    ) -> None:
        self._engine = engine
        self._channel = channel
        self._read = read
        self._poll = poll
        self._changed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep what was read fresh until stopped; while the database is away the old serves."""
        listening = Listening(self._engine, self._channel, lambda _: self._changed.set())
        async with asyncio.TaskGroup() as group:
            group.create_task(listening.run(stop), name=f"{self._channel} listening")
            while not stop.is_set():
                await self.step()
                await first_of(self._changed, stop, seconds=self._poll)

    async def step(self) -> int:
        """Read once; return 0 if the database did not answer."""
        self._changed.clear()
        try:
            async with self._engine.connect() as connection:
                await self._read(connection)
        except DATABASE_ERRORS as away:
            log.warning("not refreshed", channel=self._channel, why=said(away))
            return 0
        return 1
