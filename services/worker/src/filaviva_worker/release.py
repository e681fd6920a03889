"""Release: give jobs back before their time, so that another worker takes over at once.

Before: the work of these jobs has provably stopped.
After: they are `queued` under a new epoch with their wake-ups in the outbox, no attempt counted
(or `canceled`, where that was asked for).
May happen twice: yes; the second finds another fence.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import lifecycle, outbox
from filaviva.broker.topology import Topology
from filaviva.database.fetch import fetch
from filaviva_contracts.wire import WakeUp

_TYPE = f"{WakeUp.contract_type}.v{WakeUp.contract_version}"

_RELEASE = f"""
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS x(id, fence)),
locked AS MATERIALIZED (
    SELECT id, state, fence, attempt FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT locked.id, locked.attempt FROM locked JOIN wanted USING (id, fence)
    WHERE locked.state = 'running'),
released AS (
    UPDATE filaviva.jobs SET
        state = 'queued', epoch = epoch + 1, issue = 1, reissued_at = NULL, fence = jobs.fence + 1,
        lease_owner = NULL, lease_expires_at = NULL, not_before = NULL,
        queued_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM mine WHERE jobs.id = mine.id
    RETURNING jobs.id, jobs.epoch, jobs.type, jobs.version, jobs.queue, jobs.priority,
              jobs.correlation_id, jobs.traceparent),
closed AS (
    UPDATE filaviva.attempts SET outcome = 'released', finished_at = clock_timestamp()
    FROM mine WHERE attempts.job_id = mine.id AND attempts.number = mine.attempt),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'state', '{{"status": "queued", "reason": "released"}}' FROM mine)
INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, job_id, epoch,
                             correlation_id, traceparent, priority)
SELECT $3, queue, id || ':' || epoch || ':1', '{_TYPE}',
       jsonb_build_object('jobId', id, 'epoch', epoch, 'type', type, 'version', version,
                          'queue', queue),
       id, epoch, correlation_id, traceparent, priority
FROM released
RETURNING {outbox.RETURNING}
"""

_CANCEL = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS x(id, fence, rung)),
locked AS MATERIALIZED (
    SELECT id, state, fence, attempt, cancel_requested_at FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT locked.id, locked.attempt, wanted.rung,
        extract(epoch FROM clock_timestamp() - locked.cancel_requested_at)::float8 AS seconds
    FROM locked JOIN wanted USING (id, fence) WHERE locked.state = 'cancel_requested'),
canceled AS (
    UPDATE filaviva.jobs SET
        state = 'canceled', fence = jobs.fence + 1, lease_owner = NULL, lease_expires_at = NULL,
        finished_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM mine WHERE jobs.id = mine.id),
closed AS (
    UPDATE filaviva.attempts SET outcome = 'canceled', error_class = 'canceled',
        finished_at = clock_timestamp()
    FROM mine WHERE attempts.job_id = mine.id AND attempts.number = mine.attempt),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'state', jsonb_strip_nulls(jsonb_build_object(
        'status', 'canceled', 'rung', rung, 'seconds', round(seconds::numeric, 3)))
    FROM mine)
SELECT id, seconds FROM mine
"""

# The fence tells our attempts from everybody else's; `lost` is what others say of them.
_CLOSED = """
SELECT attempts.job_id FROM filaviva.attempts
JOIN unnest($1::uuid[], $2::bigint[]) AS x(id, fence)
    ON attempts.job_id = x.id AND attempts.fence = x.fence
WHERE attempts.outcome IN ('retry', 'failed', 'canceled', 'released')
"""


async def release(
    connection: AsyncConnection, jobs: Iterable[tuple[UUID, int]], topology: Topology
) -> list[outbox.OutboxRow]:
    """Queue again what is still ours, given as (job id, fence); return the new wake-ups."""
    ids, fences = _columns(jobs)
    rows = await fetch(connection, _RELEASE, (ids, fences, topology.jobs))
    return [outbox.row(row) for row in rows]


async def record_canceled(
    connection: AsyncConnection,
    jobs: Iterable[tuple[UUID, int]],
    rungs: Mapping[UUID, str] | None = None,
) -> dict[UUID, float]:
    """End as `canceled` what was asked to stop and has stopped; say how long each has taken."""
    ids, fences = _columns(jobs)
    reached = [(rungs or {}).get(job_id) for job_id in ids]
    rows = await fetch(connection, _CANCEL, (ids, fences, reached))
    await lifecycle.tell(connection, [row[0] for row in rows])
    return {row[0]: row[1] or 0.0 for row in rows}


async def closed(connection: AsyncConnection, jobs: Iterable[tuple[UUID, int]]) -> set[UUID]:
    """Tell whose attempts have an outcome from us already, given as (job id, fence)."""
    rows = await fetch(connection, _CLOSED, _columns(jobs))
    return {row[0] for row in rows}


def _columns(jobs: Iterable[tuple[UUID, int]]) -> tuple[list[UUID], list[int]]:
    ordered = sorted(jobs)
    return [job for job, _ in ordered], [fence for _, fence in ordered]
