"""Send ended jobs back: replay and retry are this one statement.

Before: the jobs are failed, canceled or parked.
After: each is queued under a new epoch and a new fence with a fresh allowance, its wake-up in the
outbox or in line, its open dead letter under replay; an item waits until its batch has room for it.
May happen twice: the second finds the job queued and changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from uuid import UUID

import simplejson
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import tracing
from filaviva.broker.topology import Topology
from filaviva.database import as_dict
from filaviva.outbox import OutboxRow
from filaviva.tracing.told import Attempted, Returned
from filaviva.turns import Gate
from filaviva.waking import wake

_EXCHANGE: Final = Topology().jobs
_Row: TypeAlias = Mapping[str, Any]
_NOT_TOLD: Final = ("tracestate", "revision", "parked_reason", "attempt")


@dataclass(frozen=True, slots=True)
class Requeued:
    """The jobs that went back, with their new epochs, and the messages that tell so."""

    epochs: Mapping[UUID, int]
    messages: Sequence[OutboxRow]


# Locked by primary key in key order; the row as it is now decides, whatever the statistics say.
_REQUEUE = """
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[]) AS x(id, payload)),
locked AS MATERIALIZED (
    SELECT id, parent_id, state, parked_reason, erased_at, removed FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT locked.id, locked.parent_id, wanted.payload, batches.concurrency
    FROM locked JOIN wanted USING (id)
    LEFT JOIN filaviva.batches ON batches.job_id = locked.parent_id
    WHERE locked.erased_at IS NULL AND NOT 'payload' = ANY(coalesce(locked.removed, '{}'))
        AND locked.parked_reason IS DISTINCT FROM 'items' AND (
        locked.state IN ('failed', 'canceled')
        OR (locked.state = 'queued' AND locked.parked_reason <> 'concurrency'))),
done AS (
    UPDATE filaviva.jobs AS jobs SET state = 'queued', epoch = jobs.epoch + 1,
        fence = jobs.fence + 1, issue = 1, reissued_at = NULL, failures = 0, losses = 0,
        delivery_limits = 0, not_before = NULL,
        parked_reason = CASE WHEN mine.concurrency IS NOT NULL THEN 'concurrency' END,
        deadline = CASE WHEN jobs.deadline > clock_timestamp() THEN jobs.deadline END,
        payload = coalesce(mine.payload::jsonb, jobs.payload),
        revision = jobs.revision + (mine.payload IS NOT NULL)::int,
        lease_owner = NULL, lease_expires_at = NULL, claim_id = NULL, progress = NULL,
        cancel_requested_at = NULL, result = NULL, error = NULL, removed = NULL,
        finished_at = NULL,
        queued_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM mine WHERE jobs.id = mine.id
    RETURNING jobs.id AS job_id, jobs.epoch, jobs.issue, jobs.type, jobs.version, jobs.queue,
        jobs.priority, jobs.correlation_id, jobs.traceparent, jobs.tracestate, jobs.revision,
        jobs.parked_reason,
        jobs.attempt),
reopened AS (
    UPDATE filaviva.batches SET ended_at = NULL
    WHERE job_id IN (SELECT parent_id FROM mine) AND ended_at IS NOT NULL),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT job_id, 'state', $3::text::jsonb || jsonb_build_object(
        'status', 'queued', 'epoch', epoch, 'revision', revision)
    FROM done ORDER BY job_id),
letters AS MATERIALIZED (
    SELECT letter.id FROM filaviva.dead_letters AS letter
    WHERE letter.job_id IN (SELECT job_id FROM done) AND letter.status = 'open'
    ORDER BY letter.id FOR NO KEY UPDATE),
closing AS (
    UPDATE filaviva.dead_letters AS letter SET status = 'replaying'
    FROM letters WHERE letter.id = letters.id)
SELECT * FROM done ORDER BY job_id
"""


async def requeue(  # noqa: PLR0913 - who, what, why
    connection: AsyncConnection,
    job_ids: Sequence[UUID],
    *,
    author: str,
    reason: str,
    payloads: Mapping[UUID, str] | None = None,
    detail: Mapping[str, Any] | None = None,
    gate: Gate | None = None,
) -> Requeued:
    """Queue these jobs again; `payloads` is corrected, validated JSON text for some of them.

    Only failed, canceled and parked jobs go that still have their data (`erasure.without_data`);
    compare with what comes back. The caller writes the audit log and, after its commit, hands the
    messages to the relay.
    """
    wanted = sorted(set(job_ids))
    if not wanted:
        return Requeued({}, ())
    corrected = [(payloads or {}).get(job_id) for job_id in wanted]
    told = simplejson.dumps(
        {"cause": "replay", **(detail or {}), "author": author, "reason": reason}, default=str
    )
    found = await connection.exec_driver_sql(_REQUEUE, (wanted, corrected, told))
    rows = [as_dict(row) for row in found]
    epochs = {row["job_id"]: row["epoch"] for row in rows}
    free = [_told(row) for row in rows if row["parked_reason"] is None]
    messages = await wake(connection, free, gate)
    cause = str((detail or {}).get("cause", "replay"))
    return Requeued(epochs, messages if tracing.spans is None else _within(rows, messages, cause))


def _within(rows: Sequence[_Row], messages: Sequence[OutboxRow], cause: str) -> Sequence[OutboxRow]:
    """Tell of each job that it was sent back, and have its message belong to that."""
    if tracing.spans is None:
        return messages
    within: dict[UUID | None, str] = {}
    for row in rows:
        last = Attempted(
            job_id=row["job_id"],
            number=row["attempt"],
            origin=row["traceparent"],
            state=row["tracestate"],
        )
        told = Returned(attempt=last, type=row["type"], queue=row["queue"], cause=cause)
        within[row["job_id"]] = tracing.spans.returned(told, _EXCHANGE)
    return [replace(row, hop=within.get(row.job_id)) for row in messages]


def _told(row: _Row) -> _Row:
    """Give what a wake-up says of the job."""
    return {name: value for name, value in row.items() if name not in _NOT_TOLD}
