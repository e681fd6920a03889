"""Fail: say what kind of failure an attempt met; the retry-scheduler decides what follows.

Before: the handler raised; its job is `running` (or `cancel_requested`) under our fence.
After: the attempt is closed, the job waits for a decision under a 30 s lease, and the message to
the retry-scheduler is in the outbox.
May happen twice: yes; the second time the lease is the decision's and nothing is sent again.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import outbox
from filaviva.broker.topology import Topology
from filaviva.database.fetch import fetch
from filaviva.outcome import Dead, Retry
from filaviva_contracts.wire import AttemptFailed

_TYPE = f"{AttemptFailed.contract_type}.v{AttemptFailed.contract_version}"

_FAIL = f"""
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[],
                         $7::text[], $8::float8[], $9::text[])
    AS x(id, fence, outcome, error_class, error_code, error_message, frames, retry_after, step)),
locked AS MATERIALIZED (
    SELECT id, state, fence, attempt, epoch, lease_owner, correlation_id, traceparent
    FROM filaviva.jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT locked.attempt, locked.epoch, locked.correlation_id, locked.traceparent, wanted.*
    FROM locked JOIN wanted USING (id, fence)
    WHERE locked.state IN ('running', 'cancel_requested')
      AND locked.lease_owner IS DISTINCT FROM 'decision'),
held AS (
    UPDATE filaviva.jobs SET
        lease_owner = 'decision', lease_expires_at = clock_timestamp() + interval '30 seconds',
        updated_at = clock_timestamp()
    FROM mine WHERE jobs.id = mine.id),
closed AS (
    UPDATE filaviva.attempts SET
        outcome = mine.outcome, error_class = mine.error_class, error_code = mine.error_code,
        error_message = mine.error_message, retry_after = mine.retry_after, step = mine.step,
        error_frames = ARRAY(SELECT jsonb_array_elements_text(mine.frames::jsonb)),
        finished_at = clock_timestamp()
    FROM mine WHERE attempts.job_id = mine.id AND attempts.number = mine.attempt)
INSERT INTO filaviva.outbox
    (exchange, routing_key, message_id, type, data, job_id, epoch, correlation_id, traceparent)
SELECT $10, 'attempt.failed', id || ':failed:' || fence, '{_TYPE}',
       jsonb_build_object('jobId', id, 'fence', fence), id, epoch, correlation_id, traceparent
FROM mine
RETURNING {outbox.RETURNING}
"""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt that did not succeed."""

    job_id: UUID
    fence: int
    outcome: Retry | Dead


async def fail(
    connection: AsyncConnection, failures: Iterable[FailedAttempt], topology: Topology
) -> list[outbox.OutboxRow]:
    """Close the attempts that are still ours; return the messages to the retry-scheduler."""
    ordered = sorted(failures, key=_by_job)
    causes = [each.outcome.failure for each in ordered]
    arguments = (
        [each.job_id for each in ordered],
        [each.fence for each in ordered],
        ["retry" if isinstance(each.outcome, Retry) else "failed" for each in ordered],
        [cause.error_class for cause in causes],
        [cause.code for cause in causes],
        [cause.message for cause in causes],
        [json.dumps(cause.frames) for cause in causes],
        [_retry_after(each.outcome) for each in ordered],
        [cause.step for cause in causes],
        topology.retry,
    )
    rows = await fetch(connection, _FAIL, arguments)
    return [outbox.row(row) for row in rows]


def _retry_after(outcome: Retry | Dead) -> float | None:
    return outcome.retry_after if isinstance(outcome, Retry) else None


def _by_job(failure: FailedAttempt) -> UUID:
    return failure.job_id
