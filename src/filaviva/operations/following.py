"""Have batches follow their items soon after these changed: at once when idle, else together.

A process that dies in between loses only time: the sweeper follows every open batch.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import failpoints
from filaviva.database.transaction import DATABASE_ERRORS, transact
from filaviva.operations.batches import Followed, follow
from filaviva.outbox import OutboxRow
from filaviva.service import wait

log = structlog.get_logger("filaviva")

# Batches in one transaction, so that none of them keeps the others' rows locked for long.
_TOGETHER = 20
# Of a batch of thousands each look takes a while: it must not take most of the time.
_SHARE = 0.1


class Following:
    """Collect batches whose items changed here, and bring them up to these."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        changed: Callable[[Iterable[UUID]], None],
        every: float = 0.05,
    ) -> None:
        self._engine = engine
        self._hand_over = hand_over
        self._changed = changed
        self._every = every
        self._behind: set[UUID] = set()
        self._some = asyncio.Event()

    def items_changed(self, batch_ids: Iterable[UUID | None]) -> None:
        """Remember whose items changed, after the commit; None stands for a job of no batch."""
        for batch_id in batch_ids:
            if batch_id is not None:
                self._behind.add(batch_id)
                self._some.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until stopped, and then once more for what is left."""
        while not stop.is_set():
            await _first(self._some, stop)
            began = time.monotonic()
            await self.step()
            took = time.monotonic() - began
            await wait(stop, max(self._every, took / _SHARE))
        await self.step()

    async def step(self) -> int:
        """Follow what has been collected; return how many batches that were."""
        behind, self._behind = sorted(self._behind), set()
        self._some.clear()
        for start in range(0, len(behind), _TOGETHER):
            await self._follow(behind[start : start + _TOGETHER])
        return len(behind)

    async def _follow(self, batch_ids: Sequence[UUID]) -> None:
        failpoints.passing("follow.before")
        try:
            followed = await transact(self._engine, lambda c: follow(c, batch_ids))
        except DATABASE_ERRORS as failed:
            log.info("batches wait for the database; the sweeper will see to them", why=str(failed))
            return
        self.announce(followed)

    def announce(self, followed: Followed) -> None:
        """Hand over and notify, after the commit of somebody who followed himself."""
        self._hand_over(followed.messages)
        self._changed(followed.jobs)


async def _first(*events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
