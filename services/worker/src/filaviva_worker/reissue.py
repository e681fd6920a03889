"""Re-issue: send wake-ups again that this worker can do nothing with now.

Before: deliveries are held whose jobs are `queued`: too early, without a slot, or to step back.
After: new wake-ups of the same epochs are in the outbox; the deliveries may be acknowledged.
May happen twice: yes; a job found claimed, or of another epoch, lets its wake-up go.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import wakeups
from filaviva.broker.connection import Backoff
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.outbox import OutboxRow
from filaviva.service import wait

log = structlog.get_logger("filaviva")

_POSTPONE = """
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS x(id, epoch)),
locked AS MATERIALIZED (
    SELECT id, state, epoch FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE)
UPDATE filaviva.jobs
SET not_before = clock_timestamp() + make_interval(secs => $3 * (1 + random()))
FROM locked JOIN wanted USING (id, epoch) WHERE jobs.id = locked.id AND locked.state = 'queued'
"""


async def issue_again(
    engine: AsyncEngine,
    jobs: Sequence[tuple[UUID, int]],
    stop: asyncio.Event,
    *,
    pause: float = 0,
) -> list[OutboxRow] | None:
    """Issue the wake-ups of these (job, epoch) again, however long the database is away.

    A `pause` lets the jobs step back for so long, jittered. None if stopped meanwhile.
    """
    backoff = Backoff(first=0.1, most=5)
    while not stop.is_set():
        try:
            return await transact(engine, lambda c: _again(c, jobs, pause))
        except DATABASE_ERRORS as error:
            log.warning("wake-ups wait for the database", why=said(error))
            await wait(stop, backoff.next())
    return None


async def _again(
    connection: AsyncConnection, jobs: Sequence[tuple[UUID, int]], pause: float
) -> list[OutboxRow]:
    if pause:
        ids, epochs = zip(*sorted(jobs), strict=True)
        await connection.exec_driver_sql(_POSTPONE, (list(ids), list(epochs), pause))
    return await wakeups.reissue(connection, jobs)
