"""Jobs whose handler was moved to another queue: they follow it.

Before: jobs are queued on a queue on which no live worker reads them any more, and the registry
knows another one for their contract.
After: they are queued there under a new epoch; what is left on the old queue is stale.
May happen twice: the second time they are where the registry says.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import as_dict
from filaviva.operations.readers import READERS
from filaviva.turns import Gate
from filaviva.waking import wake
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.facts import WakeUpReissued

# While a worker of the old release still reads them on the old queue they stay: a deploy that is
# rolled out step by step moves nothing. What waits for its turn, or is a batch, has no wake-up.
_MOVE = f"""
WITH able AS MATERIALIZED ({READERS}),
stranded AS MATERIALIZED (
    SELECT jobs.id, contracts.queue AS goal, jobs.queue AS old
    FROM filaviva.jobs AS jobs JOIN filaviva.contracts AS contracts USING (type, version)
    WHERE jobs.state = 'queued' AND contracts.queue <> jobs.queue
        AND contracts.deprecated_at IS NULL
        AND coalesce(jobs.parked_reason IN ('unsupported_version', 'queue_missing'), true)
        AND NOT EXISTS (
            SELECT FROM able WHERE able.queue = jobs.queue AND able.type = jobs.type
            AND jobs.version BETWEEN able.min AND able.max)
        AND NOT EXISTS (SELECT FROM filaviva.turns AS turns WHERE turns.job_id = jobs.id)
        AND NOT EXISTS (SELECT FROM filaviva.batches AS batches WHERE batches.job_id = jobs.id)
    ORDER BY jobs.id LIMIT $1 FOR NO KEY UPDATE OF jobs SKIP LOCKED),
moved AS (
    UPDATE filaviva.jobs AS jobs SET
        queue = stranded.goal, epoch = jobs.epoch + 1, issue = 1, reissued_at = NULL,
        parked_reason = NULL, queued_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM stranded WHERE jobs.id = stranded.id
    RETURNING jobs.id AS job_id, jobs.epoch, jobs.issue, jobs.type, jobs.version, jobs.queue,
        jobs.priority, jobs.correlation_id, jobs.traceparent, jobs.not_before, jobs.attempt,
        stranded.old),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT job_id, 'state', jsonb_build_object(
        'status', 'queued', 'attempt', attempt, 'queue', queue, 'movedFrom', old)
    FROM moved ORDER BY job_id)
SELECT job_id, epoch, issue, type, version, queue, priority, correlation_id, traceparent,
    not_before FROM moved ORDER BY job_id
"""

_LATELY = """
SELECT coalesce(max(updated_at) > now() - interval '1 day', false) FROM filaviva.contracts
"""


async def published_lately(connection: AsyncConnection) -> bool:
    """Tell whether a handler may have moved: `follow` looks at every queued job."""
    return bool((await connection.exec_driver_sql(_LATELY)).scalar())


async def follow(connection: AsyncConnection, gate: Gate, *, limit: int) -> Decided:
    """Move what nobody reads where it waits to the queue of its handler."""
    moved = [as_dict(row) for row in await connection.exec_driver_sql(_MOVE, (limit,))]
    return Decided(
        rows=await wake(connection, moved, gate),
        facts=[WakeUpReissued(job["job_id"], "moved") for job in moved],
        jobs=frozenset(job["job_id"] for job in moved),
    )
