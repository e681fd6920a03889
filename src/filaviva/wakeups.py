"""Wake-ups: the small messages that tell a worker that a job is due.

Before: the job is `queued`, in the caller's transaction.
After: an outbox row for it leaves with the caller's commit.
May happen twice: a worker that finds the job claimed, or of another epoch, lets the wake-up go.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import outbox
from filaviva.broker.topology import Topology
from filaviva.database import as_dict
from filaviva.outbox import NewMessage, OutboxRow
from filaviva_contracts.names import wire_type
from filaviva_contracts.wire import WakeUp

TYPE = wire_type(WakeUp.contract_type, WakeUp.contract_version)

_EXCHANGE = Topology().jobs


def wake_up(  # noqa: PLR0913 - the fields of one message
    *,
    job_id: UUID,
    epoch: int,
    issue: int,
    type: str,  # noqa: A002 - the word of the contract
    version: int,
    queue: str,
    priority: int,
    correlation_id: str,
    traceparent: str | None = None,
    not_before: datetime | None = None,
) -> NewMessage:
    """Build the message that wakes a worker for this epoch of a job; `issue` tells copies apart."""
    body = WakeUp(job_id=job_id, epoch=epoch, type=type, version=version, queue=queue)
    return NewMessage(
        exchange=_EXCHANGE,
        routing_key=queue,
        message_id=f"{job_id}:{epoch}:{issue}",
        type=TYPE,
        data=body.model_dump_json(),
        job_id=job_id,
        epoch=epoch,
        correlation_id=correlation_id,
        traceparent=traceparent,
        priority=priority,
        not_before=not_before,
    )


# Locked by primary key in key order; the row as it is now decides, whatever the statistics say.
_REISSUE = """
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS x(id, epoch)),
locked AS MATERIALIZED (
    SELECT id, state, epoch, parked_reason FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT locked.id FROM locked JOIN wanted USING (id)
    WHERE locked.epoch = wanted.epoch AND locked.state = 'queued' AND locked.parked_reason IS NULL)
UPDATE filaviva.jobs AS jobs
SET issue = jobs.issue + 1,
    reissued_at = CASE WHEN $3::boolean THEN clock_timestamp() ELSE jobs.reissued_at END
FROM mine WHERE jobs.id = mine.id
RETURNING jobs.id AS job_id, jobs.epoch, jobs.issue, jobs.type, jobs.version, jobs.queue,
    jobs.priority, jobs.correlation_id, jobs.traceparent, jobs.not_before
"""


async def reissue(
    connection: AsyncConnection, jobs: Iterable[tuple[UUID, int]], *, lost: bool = False
) -> list[OutboxRow]:
    """Issue the wake-ups of these (job, epoch) again, under the same epoch and a new message id.

    Only jobs still queued under that epoch get one.
    """
    again = await renew(connection, jobs, lost=lost)
    return await outbox.add(connection, [wake_up(**row) for row in again])


async def renew(
    connection: AsyncConnection, jobs: Iterable[tuple[UUID, int]], *, lost: bool = False
) -> Sequence[Mapping[str, Any]]:
    """Give what another wake-up of these (job, epoch) says, of those still queued under it.

    `lost` says that the earlier wake-up is believed lost: the reconciler then waits longer before
    it believes so again.
    """
    # One entry a job: the same row twice in one statement would be one update, silently.
    wanted = sorted(dict(jobs).items())
    if not wanted:
        return ()
    ids, epochs = zip(*wanted, strict=True)
    found = await connection.exec_driver_sql(_REISSUE, (list(ids), list(epochs), lost))
    return [as_dict(row) for row in found]
