"""The one place where a job that did not succeed is sent back, failed or canceled.

Before: the attempt's row says how it ended, or is still open; the job is leased under this fence.
After: the job is queued with a pause, failed or canceled, under a new fence, and an outbox row
leaves with the caller's commit.
May happen twice: whoever comes second finds another fence and changes nothing.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import lifecycle, outbox, tracing
from filaviva.outbox import NewMessage, OutboxRow
from filaviva.tracing.told import Attempted, Decision
from filaviva.turns import OPEN, Gate
from filaviva.waking import wake
from filaviva_retry_scheduler.dead import job_dead
from filaviva_retry_scheduler.facts import AttemptLost, CancelFenced, Fact, JobEnded, JobRequeued
from filaviva_retry_scheduler.verdict import (
    Cancel,
    Case,
    Fail,
    Requeue,
    Verdict,
    failures_after,
    judge,
    losses_after,
)

_LOST_ERROR = {
    "class": "lost",
    "code": "LeaseLost",
    "message": "the worker stopped answering before the attempt had an outcome",
    "retryable": True,
}

# By primary key and in key order; the row as it is now decides, whatever the statistics say.
_LOCK = """
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS x(id, fence)),
locked AS MATERIALIZED (
    SELECT id, state, fence, lease_expires_at FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE {skip})
SELECT locked.id FROM locked JOIN wanted USING (id)
WHERE locked.fence = wanted.fence AND locked.state IN ('running', 'cancel_requested') {expired}
"""
_LOCK_NAMED = _LOCK.format(skip="", expired="")
_LOCK_EXPIRED = _LOCK.format(
    skip="SKIP LOCKED", expired="AND locked.lease_expires_at < clock_timestamp()"
)

# A statement of its own after the locks: in theirs, an attempt that was closed while we waited
# would still look open.
_READ = """
SELECT jobs.id AS job_id, jobs.type, jobs.version, jobs.queue, jobs.priority, jobs.state,
    jobs.epoch, jobs.attempt, jobs.failures, jobs.losses, jobs.max_attempts, jobs.deadline,
    jobs.correlation_id, jobs.traceparent, jobs.created_at, jobs.cost_usd::float8 AS spent,
    coalesce(attempts.cost_usd, 0)::float8 AS attempt_spent,
    attempts.outcome, attempts.finished_at AS ended_at, attempts.error_class,
    attempts.error_code, attempts.error_message, attempts.retry_after,
    coalesce((contracts.policy->>'base')::double precision, 2) AS base,
    coalesce((contracts.policy->>'cap')::double precision, 300) AS cap,
    coalesce((contracts.policy->>'jitter')::double precision, 1) AS jitter,
    coalesce((contracts.policy->>'lifecycle')::boolean, false) AS lifecycle,
    extract(epoch FROM clock_timestamp() - jobs.cancel_requested_at)::float8 AS cancel_seconds,
    clock_timestamp() AS now
FROM filaviva.jobs
LEFT JOIN filaviva.attempts ON attempts.job_id = jobs.id AND attempts.number = jobs.attempt
LEFT JOIN filaviva.contracts
    ON contracts.type = jobs.type AND contracts.version = jobs.version
WHERE jobs.id = ANY($1::uuid[])
ORDER BY jobs.id
"""

_WRITE = """
WITH verdicts AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::integer[],
        $6::double precision[], $7::timestamptz[], $8::text[])
    AS v(id, state, attempt, failures, losses, pause, not_before, error)),
decided AS (
    UPDATE filaviva.jobs AS jobs SET
        state = v.state, fence = jobs.fence + 1, failures = v.failures, losses = v.losses,
        epoch = jobs.epoch + CASE WHEN v.state = 'queued' THEN 1 ELSE 0 END,
        issue = 1, reissued_at = NULL, not_before = v.not_before,
        queued_at = CASE WHEN v.state = 'queued' THEN clock_timestamp() ELSE jobs.queued_at END,
        finished_at = CASE WHEN v.state = 'queued' THEN NULL ELSE clock_timestamp() END,
        error = CASE WHEN v.state = 'canceled' THEN jobs.error ELSE v.error::jsonb END,
        lease_owner = NULL, lease_expires_at = NULL, claim_id = NULL,
        updated_at = clock_timestamp()
    FROM verdicts AS v WHERE jobs.id = v.id),
closed AS (
    UPDATE filaviva.attempts AS attempts SET
        pause_seconds = v.pause,
        outcome = coalesce(attempts.outcome, 'lost'),
        error_class = coalesce(attempts.error_class, v.error::jsonb->>'class'),
        error_code = coalesce(attempts.error_code, v.error::jsonb->>'code'),
        error_message = coalesce(attempts.error_message, v.error::jsonb->>'message'),
        finished_at = coalesce(attempts.finished_at, clock_timestamp())
    FROM verdicts AS v WHERE attempts.job_id = v.id AND attempts.number = v.attempt)
INSERT INTO filaviva.job_events (job_id, kind, data)
SELECT job_id, kind, data::jsonb
FROM unnest($9::uuid[], $10::text[], $11::text[]) WITH ORDINALITY AS e(job_id, kind, data, place)
ORDER BY place
"""


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided: outbox rows to hand over and facts to state, after the commit."""

    rows: Sequence[OutboxRow] = ()
    facts: Sequence[Fact] = ()
    jobs: frozenset[UUID] = field(default_factory=frozenset)
    decisions: Sequence[Decision] = ()  # while somebody traces


async def decide(
    connection: AsyncConnection,
    attempts: Iterable[tuple[UUID, int]],
    *,
    expired: bool = False,
    gate: Gate | None = None,
) -> Decided:
    """Decide what becomes of these (job, fence), each only if it is still leased under the fence.

    `expired`: only where the lease has run out too, and without waiting for locked jobs. Who comes
    through the `gate` gets its wake-up at the end of its pause, the others then wait their turn.
    """
    wanted = sorted(set(attempts))
    if not wanted:
        return Decided()
    arguments = ([job for job, _ in wanted], [fence for _, fence in wanted])
    locking = _LOCK_EXPIRED if expired else _LOCK_NAMED
    mine = (await connection.exec_driver_sql(locking, arguments)).scalars().all()
    if not mine:
        return Decided()
    found = await connection.exec_driver_sql(_READ, (list(mine),))
    return await _carry_out(connection, [Case(**row) for row in found.mappings()], gate or OPEN)


async def _carry_out(connection: AsyncConnection, cases: Sequence[Case], gate: Gate) -> Decided:
    since = time.time_ns()
    judged = [(case, judge(case)) for case in cases]
    events = [event for case, verdict in judged for event in _events(case, verdict)]
    changes = [_change(case, verdict) for case, verdict in judged]
    await connection.exec_driver_sql(_WRITE, (*_columns(changes), *_columns(events)))
    await lifecycle.tell(
        connection,
        [c.job_id for c, verdict in judged if c.lifecycle and not isinstance(verdict, Requeue)],
    )
    messages = [message for case, verdict in judged for message in _messages(case, verdict)]
    again = [_told(case, v.not_before) for case, v in judged if isinstance(v, Requeue)]
    return Decided(
        rows=[*await outbox.add(connection, messages), *await wake(connection, again, gate)],
        facts=[fact for judgement in judged for fact in _facts(*judgement)],
        jobs=frozenset(case.job_id for case in cases),
        decisions=() if tracing.spans is None else [_decision(*each, since) for each in judged],
    )


def _decision(case: Case, verdict: Verdict, since: int) -> Decision:
    again = verdict if isinstance(verdict, Requeue) else None
    return Decision(
        attempt=Attempted(job_id=case.job_id, number=case.attempt, origin=case.traceparent),
        type=case.type,
        state=_state(verdict),
        since=since,
        pause_seconds=again.pause_seconds if again else None,
        not_before=again.not_before if again else None,
        reason=verdict.reason if isinstance(verdict, Fail) else None,
        error_class="lost" if case.lost else case.error_class,
    )


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))


def _state(verdict: Verdict) -> str:
    match verdict:
        case Requeue():
            return "queued"
        case Fail():
            return "failed"
        case Cancel():
            return "canceled"


def _change(case: Case, verdict: Verdict) -> tuple[Any, ...]:
    pause, not_before = None, None
    if isinstance(verdict, Requeue):
        pause, not_before = verdict.pause_seconds, verdict.not_before
    return (
        case.job_id,
        _state(verdict),
        case.attempt,
        failures_after(case),
        losses_after(case),
        pause,
        not_before,
        json.dumps(_error(case, verdict)),
    )


def _error(case: Case, verdict: Verdict) -> dict[str, Any]:
    if not case.lost:
        return {
            "class": case.error_class or "unexpected",
            "code": case.error_code,
            "message": case.error_message,
            "retryable": case.retryable,
        }
    if verdict == Fail("attempts_exhausted"):
        times = losses_after(case)
        return _LOST_ERROR | {"message": f"its worker stopped answering {times} times"}
    return _LOST_ERROR


def _events(case: Case, verdict: Verdict) -> list[tuple[UUID, str, str]]:
    state: dict[str, Any] = {"status": _state(verdict), "attempt": case.attempt}
    match verdict:
        case Requeue(pause_seconds, not_before):
            state |= {"notBefore": _moment(not_before), "pauseSeconds": round(pause_seconds, 3)}
            state |= {"error": _error(case, verdict)}
        case Fail(reason):
            state |= {"reason": reason, "error": _error(case, verdict)}
        case Cancel():
            state |= _fenced(case)
    events = [(case.job_id, "state", json.dumps(state))]
    if case.lost:
        ended = {"attempt": case.attempt, "outcome": "lost", "error": _LOST_ERROR}
        events.insert(0, (case.job_id, "attempt", json.dumps(ended)))
    return events


def _fenced(case: Case) -> dict[str, Any]:
    """Say of canceled work that nobody saw it stop: its lease is over, what it writes is void."""
    if not (case.lost or case.error_class == "canceled") or case.cancel_seconds is None:
        return {}
    return {"rung": "fenced", "seconds": round(case.cancel_seconds, 3)}


def _moment(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _messages(case: Case, verdict: Verdict) -> list[NewMessage]:
    match verdict:
        case Fail(reason):
            return [
                job_dead(
                    job_id=case.job_id,
                    epoch=case.epoch,
                    reason=reason,
                    queue=case.queue,
                    correlation_id=case.correlation_id,
                    traceparent=case.traceparent,
                )
            ]
        case Requeue() | Cancel():
            return []


def _told(case: Case, not_before: datetime) -> Mapping[str, Any]:
    """What the next wake-up says."""
    return {
        "job_id": case.job_id,
        "epoch": case.epoch + 1,
        "issue": 1,
        "type": case.type,
        "version": case.version,
        "queue": case.queue,
        "priority": case.priority,
        "correlation_id": case.correlation_id,
        "traceparent": case.traceparent,
        "not_before": not_before,
    }


def _facts(case: Case, verdict: Verdict) -> list[Fact]:
    facts: list[Fact] = []
    if case.lost:
        facts.append(AttemptLost(case.job_id, case.type, case.attempt_spent))
    seconds = (case.now - case.created_at).total_seconds()
    match verdict:
        case Requeue(pause_seconds):
            facts.append(JobRequeued(case.job_id, case.type, case.attempt, pause_seconds))
        case Fail(reason):
            facts.append(JobEnded(case.job_id, case.type, "failed", seconds, reason, case.spent))
        case Cancel():
            facts.append(JobEnded(case.job_id, case.type, "canceled", seconds, spent=case.spent))
            if case.lost:  # otherwise its worker has counted it
                facts.append(CancelFenced(case.job_id, case.cancel_seconds or 0.0))
    return facts
