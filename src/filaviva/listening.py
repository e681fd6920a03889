"""Hear PostgreSQL's notifications on a connection outside the pool.

A notification is a hint: after each new connection the listener is told as if one had come.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said
from filaviva.service import first_of, wait

log = structlog.get_logger("filaviva")
_PAUSE = 1.0
_EVERY = 30.0  # seconds between two looks at whether the server is still there


class Listening:
    """Call `heard` with the payload of each notification on a channel; None: some may be missed."""

    def __init__(
        self,
        engine: AsyncEngine,
        channel: str,
        heard: Callable[[str | None], None],
        *,
        every: float = _EVERY,
    ) -> None:
        self._engine = engine
        self._every = every
        self._channel = channel
        self._heard = heard

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until stopped, over a new connection whenever one is lost."""
        while not stop.is_set():
            try:
                await self._listen(stop)
            except DATABASE_ERRORS as lost:
                log.info("listening again soon", channel=self._channel, why=said(lost))
            await wait(stop, _PAUSE)

    async def _listen(self, stop: asyncio.Event) -> None:
        async with self._engine.connect() as pooled:
            raw = await pooled.get_raw_connection()
            connection: Any = raw.driver_connection
            raw.detach()  # it stays open for as long as we listen, and takes nobody's place
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(self._channel, self._notified)
            self._heard(None)
            while not (stop.is_set() or ended.is_set()):
                await first_of(stop, ended, seconds=self._every)
                await connection.fetchval("SELECT 1")  # a server that vanished says no goodbye

    def _notified(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._heard(payload)


def told(*hearers: Callable[[str | None], None]) -> Callable[[str | None], None]:
    """Let several hear one channel over one connection."""

    def heard(payload: str | None) -> None:
        for hear in hearers:
            hear(payload)

    return heard
