"""What nobody else will do: expired leases, passed deadlines, parked jobs whose reason is gone.

Before: a job waits for something that will not come.
After: it goes on, or has ended; one transaction per duty and batch.
May happen twice: any number of sweepers skip each other's rows, and the second finds nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said, transact, unreachable
from filaviva.failpoints import passing
from filaviva.service import wait
from filaviva.turns import OPEN, Gate
from filaviva_retry_scheduler import deadlines, parked
from filaviva_retry_scheduler.announcer import Announcer
from filaviva_retry_scheduler.decide import Decided, decide
from filaviva_retry_scheduler.presence import Presence

log = structlog.get_logger("filaviva")

# now() and not clock_timestamp(): only a stable value can bound an index scan. `decide` looks
# again under the lock.
_CANDIDATES = """
SELECT id, fence FROM filaviva.jobs
WHERE state IN ('running', 'cancel_requested') AND lease_expires_at < now()
ORDER BY lease_expires_at LIMIT $1
"""

Work = Callable[[AsyncConnection], Awaitable[Decided]]


class Sweeper:
    """Free what is stuck, a batch per duty and turn."""

    def __init__(  # noqa: PLR0913 - what it works with, and its pace
        self,
        engine: AsyncEngine,
        announcer: Announcer,
        *,
        lease_seconds: float,
        presence: Presence | None = None,
        gate: Gate = OPEN,
        batch: int = 500,
        longest_pause: float = 1.0,
    ) -> None:
        self._engine = engine
        self._announcer = announcer
        self._presence = presence or Presence(lease_seconds=lease_seconds)
        self._gate = gate
        self._alive_seconds = 2 * lease_seconds
        self._batch = batch
        # Well below a heartbeat: the presence would take a longer pause for a gap.
        self._pause = min(longest_pause, lease_seconds / 10)

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until stopped."""
        while not stop.is_set():
            if await self.step() < self._batch:
                await wait(stop, self._pause)

    async def step(self) -> int:
        """Do one batch of each duty; return how many jobs changed."""
        changed = 0
        for duty in (self._free_leases, self._expire, self._release_readable):
            try:
                changed += await duty()
            except DATABASE_ERRORS as failed:
                if unreachable(failed):
                    self._presence.missed()
                    log.info("the database does not answer the sweeper", why=said(failed))
                    return changed
                log.warning("a duty of the sweeper failed", duty=duty.__name__, why=said(failed))
        return changed

    async def _free_leases(self) -> int:
        found = await transact(self._engine, self._candidates)
        self._presence.reached()
        if not found or not self._presence.steady:
            return 0
        try:
            return await self._free(found)
        except DATABASE_ERRORS as refused:
            if unreachable(refused):
                raise
            return await self._one_by_one(found)

    async def _candidates(self, connection: AsyncConnection) -> list[tuple[UUID, int]]:
        expired = await connection.exec_driver_sql(_CANDIDATES, (self._batch,))
        return [(job.id, job.fence) for job in expired]

    async def _free(self, found: Sequence[tuple[UUID, int]]) -> int:
        return await self._commit(lambda on: decide(on, found, expired=True, gate=self._gate))

    async def _one_by_one(self, found: list[tuple[UUID, int]]) -> int:
        """One job that cannot be decided must not keep the others."""
        changed = 0
        for one in found:
            try:
                changed += await self._free([one])
            except DATABASE_ERRORS as refused:
                if unreachable(refused):
                    raise
                log.warning("a job cannot be decided", job_id=str(one[0]), why=said(refused))
        return changed

    async def _expire(self) -> int:
        return await self._commit(
            lambda connection: deadlines.expire(connection, limit=self._batch)
        )

    async def _release_readable(self) -> int:
        return await self._commit(
            lambda connection: parked.release_readable(
                connection, self._gate, limit=self._batch, alive_seconds=self._alive_seconds
            )
        )

    async def _commit(self, work: Work) -> int:
        async def before_commit(connection: AsyncConnection) -> Decided:
            decided = await work(connection)
            if decided.jobs:
                passing("sweep.before_commit")
            return decided

        decided = await transact(self._engine, before_commit)
        self._announcer.announce(decided)
        return len(decided.jobs)
