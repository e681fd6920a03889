"""Birth: the rows of new jobs, each with its first event and its wake-up, or its place in line.

Before: checked submissions and the ids their jobs will have. After, with the caller's commit: the
jobs are queued; what goes to the relay is known.
May happen twice: the second finds each job by its id or its key and makes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from uuid import UUID

from filaviva import outbox, wakeups
from filaviva.broker.topology import Topology
from filaviva.database.fetch import fetch
from filaviva.database.lines import Connected
from filaviva.operations.submission import Submission
from filaviva.outbox import OutboxRow
from filaviva.turns import Gate
from filaviva.waking import pause_until

New: TypeAlias = Sequence[tuple[UUID, Submission]]

# ON CONFLICT without a target: after an unknown COMMIT the same ids are sent again, and neither
# the key nor the id of a row that is there already may be an error.
_CREATE = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::int[],
        $7::text[], $8::text[], $9::int[], $10::smallint[], $11::timestamptz[],
        $12::timestamptz[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[],
        $18::text[], $19::text[])
    AS x(id, tenant, key, fingerprint, type, version, queue, payload, max_attempts, priority,
        not_before, deadline, labels, subject, submitted_by, correlation_id, traceparent,
        callback_url, tracestate)),
created AS (
    INSERT INTO filaviva.jobs (id, tenant, idempotency_key, fingerprint, type, version, queue,
        payload, max_attempts, priority, not_before, deadline, labels, subject, submitted_by,
        correlation_id, traceparent, callback_url, tracestate)
    SELECT id, tenant, key, fingerprint, type, version, queue, payload::jsonb, max_attempts,
        priority, not_before, deadline, labels::jsonb, subject, submitted_by, correlation_id,
        traceparent, callback_url, tracestate
    FROM wanted
    ON CONFLICT DO NOTHING
    RETURNING id, tenant, type, version, queue, priority, not_before, correlation_id,
        traceparent),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'state', '{"status": "queued", "reason": "submitted"}' FROM created)
"""

_SUBMIT = f"""{_CREATE}
INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, job_id, epoch,
    correlation_id, traceparent, priority, not_before)
SELECT $20::text, queue, id || ':1:1', $21::text,
    jsonb_build_object('jobId', id, 'epoch', 1, 'type', type, 'version', version, 'queue', queue),
    id, 1, correlation_id, traceparent, priority, not_before
FROM created
RETURNING {outbox.RETURNING}
"""

# Their wake-ups are issued when it is their turn, and their time has come.
_SUBMIT_WAITING = f"""{_CREATE},
later AS (
    INSERT INTO filaviva.upcoming (job_id, epoch, due_at)
    SELECT id, 1, not_before FROM created WHERE not_before > now()),
in_line AS (
    INSERT INTO filaviva.turns (queue, tenant, priority, job_id, epoch)
    SELECT queue, tenant, priority, id, 1 FROM created WHERE coalesce(not_before <= now(), true))
SELECT id FROM created
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """The jobs that are new, and what goes to the relay once they are committed."""

    created: frozenset[UUID] = field(default_factory=frozenset)
    rows: Sequence[OutboxRow] = ()


def at_once(turns: Gate | None, job: Submission, jobs: int = 1) -> int:
    """Tell how many of so many such jobs get their wake-up now; the others wait for a turn."""
    if turns is None:
        return jobs
    return turns.at_once(job.queue, jobs, pause=pause_until(job.not_before))


async def store_all(connection: Connected, new: New, turns: Gate | None = None) -> Stored:
    """Store these jobs; those that were there stay as they are."""
    now, later = list(new), []
    if turns is not None:
        now = [(job_id, job) for job_id, job in new if at_once(turns, job)]
        chosen = {job_id for job_id, _ in now}
        later = [(job_id, job) for job_id, job in new if job_id not in chosen]
    rows = await _store(connection, now) if now else []
    waiting = await fetch(connection, _SUBMIT_WAITING, _columns(later)) if later else ()
    woken = (row.job_id for row in rows if row.job_id is not None)
    return Stored(frozenset((*woken, *(row[0] for row in waiting))), rows)


async def _store(connection: Connected, new: New) -> list[OutboxRow]:
    arguments = (*_columns(new), Topology().jobs, wakeups.TYPE)
    rows = [OutboxRow(*record) for record in await fetch(connection, _SUBMIT, arguments)]
    states: dict[UUID | None, str] = {
        job_id: job.tracestate for job_id, job in new if job.tracestate is not None
    }
    if not states:
        return rows
    return [replace(row, tracestate=states.get(row.job_id)) for row in rows]


def _columns(new: New) -> tuple[list[Any], ...]:
    jobs = [job for _, job in new]
    return (
        [job_id for job_id, _ in new],
        [job.tenant for job in jobs],
        [job.idempotency_key for job in jobs],
        [job.fingerprint for job in jobs],
        [job.type for job in jobs],
        [job.version for job in jobs],
        [job.queue for job in jobs],
        [job.payload for job in jobs],
        [job.max_attempts for job in jobs],
        [job.priority for job in jobs],
        [job.not_before for job in jobs],
        [job.deadline for job in jobs],
        [job.labels for job in jobs],
        [job.subject for job in jobs],
        [job.submitted_by for job in jobs],
        [job.correlation_id for job in jobs],
        [job.traceparent for job in jobs],
        [job.callback_url for job in jobs],
        [job.tracestate for job in jobs],
    )
