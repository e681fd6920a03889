"""Parked jobs whose reason is gone: woken under a new epoch.

Before: the job is queued and parked: neither claim nor reconciler sees it.
After: it is queued, and its wake-up leaves with the caller's commit, or when it is its turn.
May happen twice: the second time it is not parked.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import as_dict
from filaviva.turns import Gate
from filaviva.waking import wake
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.facts import WakeUpReissued

Cause: TypeAlias = Literal["unsupported_version", "queue_missing"]

_RELEASE = """
WITH {freed},
released AS (
    UPDATE filaviva.jobs AS jobs SET
        parked_reason = NULL, epoch = jobs.epoch + 1, issue = 1, reissued_at = NULL,
        queued_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM freed WHERE jobs.id = freed.id
    RETURNING jobs.id AS job_id, jobs.epoch, jobs.issue, jobs.type, jobs.version, jobs.queue,
        jobs.priority, jobs.correlation_id, jobs.traceparent, jobs.not_before, jobs.attempt),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT job_id, 'state', jsonb_build_object(
        'status', 'queued', 'attempt', attempt, 'unparked', $1::text)
    FROM released ORDER BY job_id)
SELECT job_id, epoch, issue, type, version, queue, priority, correlation_id, traceparent,
    not_before FROM released ORDER BY job_id
"""

_READABLE = _RELEASE.format(
    freed="""
able AS MATERIALIZED (
    SELECT DISTINCT served.queue, reads.type, reads.min, reads.max
    FROM filaviva.workers AS workers, unnest(workers.queues) AS served(queue),
        jsonb_to_recordset(workers.reads) AS reads(type text, min integer, max integer)
    WHERE workers.stopped_at IS NULL
        AND workers.last_seen_at > now() - make_interval(secs => $3::double precision)),
freed AS MATERIALIZED (
    SELECT id FROM filaviva.jobs AS jobs
    WHERE parked_reason = $1::text AND state = 'queued' AND EXISTS (
        SELECT FROM able WHERE able.queue = jobs.queue AND able.type = jobs.type
        AND jobs.version BETWEEN able.min AND able.max)
    ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)"""
)

_ON_QUEUES = _RELEASE.format(
    freed="""
freed AS MATERIALIZED (
    SELECT id FROM filaviva.jobs
    WHERE parked_reason = $1::text AND state = 'queued' AND queue = ANY($3::text[])
    ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)"""
)

_MISSING = """
SELECT DISTINCT queue FROM filaviva.jobs
WHERE parked_reason = 'queue_missing' AND state = 'queued' ORDER BY queue
"""


async def release_readable(
    connection: AsyncConnection, gate: Gate, *, limit: int, alive_seconds: float
) -> Decided:
    """Wake jobs parked for their version that a live worker reads by now."""
    arguments = ("unsupported_version", limit, alive_seconds)
    freed = await connection.exec_driver_sql(_READABLE, arguments)
    return await _wake(connection, [as_dict(row) for row in freed], "unsupported_version", gate)


async def missing_queues(connection: AsyncConnection) -> list[str]:
    """Give the queues for whose absence jobs are parked."""
    return list((await connection.exec_driver_sql(_MISSING)).scalars())


async def release_on(
    connection: AsyncConnection, gate: Gate, queues: Collection[str], *, limit: int
) -> Decided:
    """Wake jobs that were parked because one of these queues was missing."""
    arguments = ("queue_missing", limit, sorted(queues))
    freed = await connection.exec_driver_sql(_ON_QUEUES, arguments)
    return await _wake(connection, [as_dict(row) for row in freed], "queue_missing", gate)


async def _wake(
    connection: AsyncConnection, freed: Sequence[Mapping[str, Any]], cause: Cause, gate: Gate
) -> Decided:
    return Decided(
        rows=await wake(connection, freed, gate),
        facts=[WakeUpReissued(job["job_id"], cause) for job in freed],
        jobs=frozenset(job["job_id"] for job in freed),
    )
