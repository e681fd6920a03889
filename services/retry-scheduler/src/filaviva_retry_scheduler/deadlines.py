"""Queued jobs whose deadline has passed: failed, with a dead letter `expired`.

Before: the job is queued; no worker will claim it any more.
After: it is failed, and the outbox row of its dead letter leaves with the caller's commit.
May happen twice: the second time it is not queued.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import lifecycle, outbox
from filaviva_retry_scheduler.dead import job_dead
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.facts import JobEnded

# now() and not clock_timestamp(): only a stable value can bound an index scan.
_EXPIRE = """
WITH late AS MATERIALIZED (
    SELECT id FROM filaviva.jobs WHERE state = 'queued' AND deadline < now()
        AND parked_reason IS DISTINCT FROM 'items'
    ORDER BY deadline LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED),
ended AS (
    UPDATE filaviva.jobs AS jobs SET
        state = 'failed', fence = jobs.fence + 1, issue = 1, reissued_at = NULL,
        parked_reason = NULL, not_before = NULL,
        error = jsonb_build_object('class', 'timeout', 'code', 'DeadlineExpired',
            'message', 'its deadline passed while it waited', 'retryable', false),
        finished_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM late WHERE jobs.id = late.id
    RETURNING jobs.id AS job_id, jobs.epoch, jobs.type, jobs.queue, jobs.attempt, jobs.error,
        jobs.correlation_id, jobs.traceparent,
        extract(epoch FROM jobs.finished_at - jobs.created_at)::double precision AS seconds),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT job_id, 'state', jsonb_build_object('status', 'failed', 'attempt', attempt,
        'reason', 'expired', 'error', error)
    FROM ended ORDER BY job_id)
SELECT job_id, epoch, type, queue, correlation_id, traceparent, seconds FROM ended ORDER BY job_id
"""


async def expire(connection: AsyncConnection, *, limit: int) -> Decided:
    """Fail queued jobs whose deadline has passed, the latest first."""
    ended = (await connection.exec_driver_sql(_EXPIRE, (limit,))).all()
    await lifecycle.tell(connection, [job.job_id for job in ended])
    messages = [
        job_dead(
            job_id=job.job_id,
            epoch=job.epoch,
            reason="expired",
            queue=job.queue,
            correlation_id=job.correlation_id,
            traceparent=job.traceparent,
        )
        for job in ended
    ]
    return Decided(
        rows=await outbox.add(connection, messages),
        facts=[JobEnded(job.job_id, job.type, "failed", job.seconds, "expired") for job in ended],
        jobs=frozenset(job.job_id for job in ended),
    )
