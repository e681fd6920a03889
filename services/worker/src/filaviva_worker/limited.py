"""Claim for tenants that have a limit of running jobs: never one more than it allows.

Before: wake-ups whose jobs the claim left apart. After: in one transaction that holds the tenants'
rows, those with a place are claimed, the others are kept back and their wake-ups used up.
May happen twice: what an unanswered commit has claimed is found again by its claim id.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.broker.connection import Backoff
from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.limits import EVERY, TenantLimits
from filaviva.operations import places
from filaviva.operations.places import Wanted
from filaviva.service import wait
from filaviva_worker.claim import Claims, Verdict, claim, claimed_before
from filaviva_worker.wakeup import WakeUp

log = structlog.get_logger("filaviva")

_WANTED = """
SELECT jobs.id, jobs.epoch, jobs.tenant, coalesce(jobs.subject, '')
FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS x(id, epoch, place)
JOIN filaviva.jobs AS jobs USING (id, epoch)
WHERE jobs.state = 'queued' AND jobs.parked_reason IS NULL ORDER BY place
"""
# The claim says that it need not be flushed. Here it must: a crash of the database that took it
# back would give its place to another, and who is kept back has no wake-up any more.
_FLUSHED = "SET LOCAL synchronous_commit TO DEFAULT"


@dataclass(frozen=True, slots=True)
class Claiming:
    """How a batch is claimed."""

    worker: str
    claim_id: UUID
    lease_seconds: float
    suspect_too: bool


class Limited:
    """The door for jobs of limited tenants; nobody else comes here."""

    def __init__(self, engine: AsyncEngine, limits: TenantLimits) -> None:
        self._engine = engine
        self._limits = limits

    @property
    def tenants(self) -> list[str]:
        """Give the tenants whose jobs the ordinary claim leaves apart; "*": everybody's."""
        return [EVERY] if self._limits.runs_of_everybody else self._limits.runs_of

    async def claim(self, wakes: Sequence[WakeUp], how: Claiming, stop: asyncio.Event) -> Claims:
        """Claim what has a place; once stopped, what was not answered counts as come too early."""
        backoff = Backoff(first=0.1, most=5)
        while not stop.is_set():
            try:
                return await transact(self._engine, lambda on: self._claim(on, wakes, how))
            except DATABASE_ERRORS as error:
                log.warning("limited claims wait for the database", why=said(error))
                await wait(stop, backoff.next())
        return Claims({}, {wake.job_id: Verdict.EARLY for wake in wakes})

    async def _claim(
        self, connection: AsyncConnection, wakes: Sequence[WakeUp], how: Claiming
    ) -> Claims:
        ids = [wake.job_id for wake in wakes]
        before = await claimed_before(connection, ids, worker=how.worker, claim_id=how.claim_id)
        columns = (ids, [wake.epoch for wake in wakes])
        wanted = [Wanted(*row) for row in await fetch(connection, _WANTED, columns)]
        granted = await places.free(connection, self._limits, wanted)
        over = {one.id: one for one in wanted if one.id not in granted}
        claims = await claim(
            connection,
            [w for w in wakes if w.job_id not in over and w.job_id not in before],
            worker=how.worker,
            claim_id=how.claim_id,
            lease_seconds=how.lease_seconds,
            suspect_too=how.suspect_too,
        )
        await fetch(connection, _FLUSHED)
        await places.park(connection, over.values())
        kept_back = dict.fromkeys(over, Verdict.LIMITED)
        return Claims({**before, **claims.claimed}, {**claims.others, **kept_back})
