"""Claim for one lane: whatever the database does meanwhile, nothing is taken twice or forgotten.

Before: wake-ups of a lane that has free slots. After: it is known which of their jobs are ours.
May happen twice: what an unanswered claim took is found again by its claim id.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.broker.connection import Backoff
from filaviva.database.lines import Lines
from filaviva.database.transaction import DATABASE_ERRORS, said, unreachable
from filaviva.service import wait
from filaviva_worker.claim import SUSPICIOUS, Claimed, Claims, Verdict, claim, claimed_before
from filaviva_worker.limited import Claiming, Limited
from filaviva_worker.wakeup import WakeUp

log = structlog.get_logger("filaviva")


class Claimer:
    """The way of a lane's wake-ups through the claim, and through the limits of their tenants."""

    def __init__(
        self, engine: AsyncEngine, limited: Limited, *, worker: str, lease_seconds: float
    ) -> None:
        self._lines = Lines(engine)
        self._limited = limited
        self._worker = worker
        self._lease = lease_seconds

    async def claim(
        self, wanted: Sequence[WakeUp], stop: asyncio.Event, *, suspect_too: bool
    ) -> Claims | None:
        """Claim, again while the database is away; None when stopped meanwhile, or refused."""
        how = Claiming(self._worker, uuid4(), self._lease, suspect_too=suspect_too)
        backoff = Backoff(first=0.1, most=5)
        unsure = False
        while not stop.is_set():
            try:
                claims = await self._once(wanted, how, unsure=unsure)
                return await self._apart(wanted, claims, how, stop)
            except DATABASE_ERRORS as error:
                unsure = unsure or unreachable(error)
                log.warning("claims wait for the database", why=said(error))
                await wait(stop, backoff.next())
                if not unsure:  # somebody holds one of the rows: it must not keep the others
                    break
        return None

    async def _once(self, wanted: Sequence[WakeUp], how: Claiming, *, unsure: bool) -> Claims:
        async with self._lines.line() as connection:
            before: dict[UUID, Claimed] = {}
            if unsure:  # the answer was lost, perhaps not the claim
                before = await claimed_before(
                    connection,
                    [wake.job_id for wake in wanted],
                    worker=how.worker,
                    claim_id=how.claim_id,
                )
            claims = await claim(
                connection,
                [wake for wake in wanted if wake.job_id not in before],
                worker=how.worker,
                claim_id=how.claim_id,
                lease_seconds=how.lease_seconds,
                suspect_too=how.suspect_too and not _suspect_among(before.values()),
                apart=self._limited.tenants,
            )
        return Claims({**before, **claims.claimed}, claims.others)

    async def _apart(
        self, wanted: Sequence[WakeUp], claims: Claims, how: Claiming, stop: asyncio.Event
    ) -> Claims:
        """Claim once more what was left apart, with its tenants' limits counted."""
        apart = [w for w in wanted if claims.others.get(w.job_id) is Verdict.LIMITED]
        if not apart:
            return claims
        # One suspect at a time, whoever's it is.
        one_more = how.suspect_too and not _suspect_among(claims.claimed.values())
        more = await self._limited.claim(apart, replace(how, suspect_too=one_more), stop)
        return Claims({**claims.claimed, **more.claimed}, {**claims.others, **more.others})


def _suspect_among(jobs: Iterable[Claimed]) -> bool:
    return any(job.losses >= SUSPICIOUS for job in jobs)
