"""Batches that nobody has brought up to their items: a process died between the two.

Before: an item changed, and its batch does not show it. After: it does, and may have ended.
May happen twice: the second finds the batch as its items are.
"""

import asyncio
from collections.abc import Iterator, Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said, transact, unreachable
from filaviva.operations import batches
from filaviva.operations.following import Following
from filaviva.service import wait

log = structlog.get_logger("filaviva")

_FIRST = UUID(int=0)
_TOGETHER = 20


class BatchSweep:
    """Look at every open batch in turn, at most so many items a turn."""

    def __init__(
        self,
        engine: AsyncEngine,
        following: Following,
        *,
        items: int = 20_000,
        limit: int = 200,
        pause: float = 1.0,
    ) -> None:
        self._engine = engine
        self._following = following
        self._items = items
        self._limit = limit
        self._pause = pause
        self._last = _FIRST

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until stopped."""
        while not stop.is_set():
            try:
                await self.step()
            except DATABASE_ERRORS as away:
                log.info("the database does not answer the sweep of batches", why=said(away))
            await wait(stop, self._pause)

    async def step(self) -> int:
        """Follow the next of the open batches; return how many."""
        wanted = await self._next()
        for group in _groups(wanted):
            await self._follow(group)
        return len(wanted)

    async def _next(self) -> list[UUID]:
        found = await transact(
            self._engine,
            lambda c: batches.still_open(c, after=self._last, limit=self._limit),
        )
        taken: list[UUID] = []
        items = 0
        for batch_id, total in found:
            if taken and items + total > self._items:
                break
            taken.append(batch_id)
            items += total
        more = len(taken) < len(found) or len(found) == self._limit
        self._last = taken[-1] if more else _FIRST
        return taken

    async def _follow(self, group: Sequence[UUID]) -> None:
        """One batch that cannot be followed must not keep the others."""
        try:
            followed = await transact(self._engine, lambda c: batches.follow(c, group))
        except DATABASE_ERRORS as failed:
            if unreachable(failed):
                raise
            if len(group) == 1:
                log.warning("a batch cannot be followed", job_id=str(group[0]), why=said(failed))
                return
            for one in group:
                await self._follow([one])
            return
        self._following.followed(followed)


def _groups(ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    for start in range(0, len(ids), _TOGETHER):
        yield ids[start : start + _TOGETHER]
