"""The loop that fires schedules, in any number of processes at once.

Before: schedules are due. After: each has fired once for each of its times, or its policies
have left them out, or they wait in its row.
May happen twice: any number of loops skip each other's rows.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said, transact, unreachable
from filaviva.failpoints import passing
from filaviva.operations.quotas import Quotas
from filaviva.service import wait
from filaviva.turns import OPEN, Gate
from filaviva_retry_scheduler import firing
from filaviva_retry_scheduler.announcer import Announcer
from filaviva_retry_scheduler.decide import Decided

log = structlog.get_logger("filaviva")


class Calendar:
    """Fire what is due, a few schedules a turn: each may have many missed times to make up for."""

    def __init__(  # noqa: PLR0913 - what it works with, and its pace
        self,
        engine: AsyncEngine,
        announcer: Announcer,
        *,
        gate: Gate = OPEN,
        quotas: Quotas | None = None,
        batch: int = 20,
        pause: float = 1.0,
    ) -> None:
        self._engine = engine
        self._announcer = announcer
        self._gate = gate
        self._quotas = quotas
        self._batch = batch
        self._pause = pause

    async def run(self, stop: asyncio.Event) -> None:
        """Fire until stopped."""
        while not stop.is_set():
            try:
                busy = await self.step() >= self._batch
            except DATABASE_ERRORS as absent:
                log.info("the database does not answer the calendar", why=said(absent))
                busy = False
            if not busy:
                await wait(stop, self._pause)

    async def step(self) -> int:
        """Fire one batch of due schedules; return how many were due."""

        async def find(connection: AsyncConnection) -> list[UUID]:
            return await firing.due(connection, limit=self._batch)

        found = await transact(self._engine, find)
        if found:
            await self._fire(found)
        return len(found)

    async def _fire(self, found: Sequence[UUID]) -> None:
        try:
            await self._commit(found)
        except DATABASE_ERRORS as refused:
            if unreachable(refused):
                raise
            await self._one_by_one(found)

    async def _one_by_one(self, found: Sequence[UUID]) -> None:
        """One schedule that cannot fire must not keep the others."""
        for one in found:
            try:
                await self._commit([one])
            except DATABASE_ERRORS as refused:
                if unreachable(refused):
                    raise
                log.warning("a schedule cannot fire", schedule=str(one), why=said(refused))

    async def _commit(self, schedules: Sequence[UUID]) -> None:
        async def work(connection: AsyncConnection) -> Decided:
            decided = await firing.fire(connection, schedules, self._gate, self._quotas)
            passing("calendar.before_commit")
            return decided

        self._announcer.announce(await transact(self._engine, work))
