"""Have batches follow their items soon after these changed: at once when idle, else together.

A process that dies in between loses only time: the sweeper follows every open batch.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Self
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import failpoints
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.notify import Notifier
from filaviva.operations.batch_state import FINAL
from filaviva.operations.batches import Followed, batches_of, follow
from filaviva.outbox import OutboxRow
from filaviva.relay import Relay, unhurried
from filaviva.service import first_of, wait
from filaviva.telemetry.metrics import Metrics

log = structlog.get_logger("filaviva")

# Batches in one transaction, so that none of them keeps the others' rows locked for long.
_TOGETHER = 20
# Looking at a batch of thousands takes a while: the pause grows with it, to 0.2 s for the largest.
_PAUSE_PER_ITEM = 20e-6


class Following:
    """Collect batches whose items changed here, and bring them up to these."""

    def __init__(  # noqa: PLR0913 - what it tells, and its pace
        self,
        engine: AsyncEngine,
        *,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        changed: Callable[[Iterable[UUID]], None],
        hurry: Callable[[], None] = unhurried,
        metrics: Metrics | None = None,
        every: float = 0.05,
    ) -> None:
        self._engine = engine
        self._hand_over = hand_over
        self._changed = changed
        self._hurry = hurry
        self._metrics = metrics
        self._every = every
        self._jobs: set[UUID] = set()
        self._behind: set[UUID] = set()
        self._some = asyncio.Event()
        self._looked_at = 0

    @classmethod
    def by(cls, engine: AsyncEngine, relay: Relay, notifier: Notifier, metrics: Metrics) -> Self:
        """Have a process's relay send, and its notifier tell, what becomes of batches."""
        return cls(
            engine,
            hand_over=relay.hand_over,
            changed=notifier.changed,
            hurry=relay.hurry,
            metrics=metrics,
        )

    def changed(self, job_ids: Iterable[UUID]) -> None:
        """Tell whoever waits for these jobs, and remember that they may be some batch's items."""
        jobs = frozenset(job_ids)
        self._changed(jobs)
        self._jobs |= jobs
        if jobs:
            self._some.set()

    def items_changed(self, batch_ids: Iterable[UUID | None]) -> None:
        """Remember whose items changed, after the commit; None stands for a job of no batch."""
        for batch_id in batch_ids:
            if batch_id is not None:
                self._behind.add(batch_id)
                self._some.set()

    def followed(self, followed: Followed) -> None:
        """Hand over and tell what a transaction has done that is committed now."""
        self._hand_over(followed.messages)
        self._changed(followed.jobs)
        if followed.canceled or any(followed.states.get(job) in FINAL for job in followed.jobs):
            self._hurry()  # who wants to be told of an end has a row that nobody hands over
        if self._metrics is not None:
            for job in followed.canceled:
                self._metrics.jobs_finished.labels(job.type, "canceled").inc()
                self._metrics.end_to_end.labels(job.type, "canceled").observe(job.age or 0)

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until stopped, and then once more for what is left."""
        while not stop.is_set():
            await first_of(self._some, stop)
            self._looked_at = 0
            await self.step()
            await wait(stop, max(self._every, self._looked_at * _PAUSE_PER_ITEM))
        await self.step()

    async def step(self) -> int:
        """Follow what has been collected; return how many batches that were."""
        self._some.clear()
        jobs, self._jobs = self._jobs, set()
        behind, self._behind = self._behind, set()
        try:
            wanted = sorted(behind | await self._batches_of(jobs))
            for start in range(0, len(wanted), _TOGETHER):
                await self._follow(wanted[start : start + _TOGETHER])
        except DATABASE_ERRORS as failed:
            log.warning("batches are left to the sweeper", why=said(failed))
            return 0
        return len(wanted)

    async def _batches_of(self, jobs: set[UUID]) -> set[UUID]:
        if not jobs:
            return set()
        async with self._engine.connect() as connection:
            return await batches_of(connection, jobs)

    async def _follow(self, batch_ids: Sequence[UUID]) -> None:
        failpoints.passing("follow.before")
        followed = await transact(self._engine, lambda c: follow(c, batch_ids))
        self._looked_at += followed.items
        self.followed(followed)
