"""Keep a batch: the job that stands for the whole, and a job for each item, in two statements.

Before: a checked submission with items. After, with the caller's commit: the batch, parked for
its items; the items, queued with their wake-ups, those beyond the batch's concurrency parked.
May happen twice: the second finds the batch by its key and makes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import uuid_utils
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import outbox, wakeups
from filaviva.broker.topology import Topology
from filaviva.database.fetch import fetch
from filaviva.operations import batch_state
from filaviva.operations.batch_request import Batch
from filaviva.operations.submission import Submission
from filaviva.outbox import OutboxRow

_BATCH = """
WITH created AS (
    INSERT INTO filaviva.jobs (id, tenant, idempotency_key, fingerprint, type, version, queue,
        payload, max_attempts, priority, not_before, deadline, labels, subject, submitted_by,
        correlation_id, traceparent, parked_reason, progress, callback_url, tracestate)
    VALUES ($1::uuid, $2::text, $3::text, $4::bytea, $5::text, $6::int, $7::text, '{}', $8::int,
        $9::smallint, $10::timestamptz, $11::timestamptz, $12::text::jsonb, $13::text, $14::text,
        $15::text, $16::text, 'items', $17::text::jsonb, $24::text, $25::text)
    ON CONFLICT DO NOTHING RETURNING id),
kept AS (
    INSERT INTO filaviva.batches
        (job_id, total, accept_partial, fail_fast, max_failures, concurrency, told)
    SELECT id, $18::int, $19::boolean, $20::boolean, $21::int, $22::int, $23::text FROM created),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'state', '{"status": "queued", "reason": "submitted"}' FROM created)
SELECT id FROM created
"""

# Everything but the data is the batch's own. The fingerprint is nobody's: no request is an item.
_ITEMS = f"""
WITH batch AS MATERIALIZED (SELECT * FROM filaviva.jobs WHERE id = $1::uuid),
wanted AS MATERIALIZED (
    SELECT id, payload, place - 1 AS index
    FROM unnest($2::uuid[], $3::text[]) WITH ORDINALITY AS x(id, payload, place)),
created AS (
    INSERT INTO filaviva.jobs (id, parent_id, item_index, tenant, idempotency_key, fingerprint,
        type, version, queue, payload, max_attempts, priority, not_before, deadline, labels,
        subject, submitted_by, correlation_id, traceparent, tracestate, parked_reason)
    SELECT wanted.id, batch.id, index, tenant, 'item:' || batch.id || ':' || index, ''::bytea,
        type, version, queue, wanted.payload::jsonb, max_attempts, priority, not_before, deadline,
        labels, subject, submitted_by, correlation_id, traceparent, tracestate,
        CASE WHEN index >= $4::int THEN 'concurrency' END
    FROM wanted CROSS JOIN batch ORDER BY index
    RETURNING id, tenant, item_index, type, version, queue, priority, not_before,
        correlation_id, traceparent, parked_reason),
later AS (
    INSERT INTO filaviva.upcoming (job_id, epoch, due_at)
    SELECT id, 1, not_before FROM created
    WHERE parked_reason IS NULL AND item_index >= $7::int AND not_before > now()),
in_line AS (
    INSERT INTO filaviva.turns (queue, tenant, priority, job_id, epoch)
    SELECT queue, tenant, priority, id, 1 FROM created
    WHERE parked_reason IS NULL AND item_index >= $7::int AND coalesce(not_before <= now(), true)),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'state', '{{"status": "queued", "reason": "submitted"}}' FROM created)
INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, job_id, epoch,
    correlation_id, traceparent, priority, not_before)
SELECT $5::text, queue, id || ':1:1', $6::text,
    jsonb_build_object('jobId', id, 'epoch', 1, 'type', type, 'version', version, 'queue', queue),
    id, 1, correlation_id, traceparent, priority, not_before
FROM created WHERE parked_reason IS NULL AND item_index < $7::int
RETURNING {outbox.RETURNING}
"""


async def store(
    connection: AsyncConnection,
    batch_id: UUID,
    submission: Submission,
    batch: Batch,
    *,
    at_once: Callable[[int], int],
) -> list[OutboxRow] | None:
    """Store the batch under this id; None if its key is taken (or it is stored already).

    `at_once` tells how many of so many items get their wake-up now: the others wait for a turn.
    """
    # Made after the batch's id, so greater: locking in key order takes a batch before its items.
    ids = [UUID(bytes=uuid_utils.uuid7().bytes) for _ in batch.items]
    if not await fetch(connection, _BATCH, (batch_id, *_columns(submission, batch))):
        return None
    most = len(ids) if batch.concurrency is None else min(batch.concurrency, len(ids))
    names = (Topology().jobs, wakeups.TYPE)
    arguments = (batch_id, ids, list(batch.items), most, *names, at_once(most))
    rows = [OutboxRow(*record) for record in await fetch(connection, _ITEMS, arguments)]
    return [replace(row, tracestate=submission.tracestate) for row in rows]


def _columns(job: Submission, batch: Batch) -> Sequence[object]:
    told = batch_state.born(len(batch.items), batch.concurrency)
    return (
        job.tenant,
        job.idempotency_key,
        job.fingerprint,
        job.type,
        job.version,
        job.queue,
        job.max_attempts,
        job.priority,
        job.not_before,
        job.deadline,
        job.labels,
        job.subject,
        job.submitted_by,
        job.correlation_id,
        job.traceparent,
        batch_state.progress(told),
        len(batch.items),
        batch.accept_partial,
        batch.fail_fast,
        batch.max_failures,
        batch.concurrency,
        told,
        job.callback_url,
        job.tracestate,
    )
