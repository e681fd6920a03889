"""Let those wait for their turn whose time has come.

Before: jobs are in `upcoming`. After: those that are due are in `turns`, a batch a transaction.
May happen twice: any number of processes skip each other's rows, and the second finds nothing.
"""

import asyncio

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.failpoints import passing
from filaviva.service import wait
from filaviva_retry_scheduler import waiting
from filaviva_retry_scheduler.waiting import Due

log = structlog.get_logger("filaviva")


class Coming:
    """Look at the next that come due; beside the giving of turns, which must not wait for it."""

    def __init__(self, engine: AsyncEngine, *, batch: int = 1000, pause: float = 0.25) -> None:
        self._engine = engine
        self._batch = batch
        self._pause = pause
        self._next_look = pause

    async def run(self, stop: asyncio.Event) -> None:
        """Look until stopped."""
        while not stop.is_set():
            try:
                busy = await self.step() >= self._batch
            except DATABASE_ERRORS as failed:
                log.warning("those who come due wait", why=said(failed))
                busy = False
            if not busy:
                await wait(stop, self._next_look)

    async def step(self) -> int:
        """Move one batch; return how many were due."""
        due = await transact(self._engine, lambda on: waiting.come_due(on, most=self._batch))
        passing("due.committed")
        self._next_look = self._until(due)
        return due.count

    def _until(self, due: Due) -> float:
        """Be there when the next ones come due."""
        return self._pause if due.next_in is None else min(max(due.next_in, 0.01), self._pause)
