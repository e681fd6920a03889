"""Fire schedules whose time has come: a job each, and the row's next time, in one commit.

Before: the row is enabled, its next time has come.
After: its jobs are queued, their wake-ups leave with the caller's commit, the next time is later.
May happen twice: whoever comes second finds the row locked or its time moved; and a job's key is
the schedule and the time it was fired for.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection
from uuid_utils.compat import uuid7

from filaviva.cron import Cron, Turn, turn
from filaviva.database import as_dict
from filaviva.operations.figures import moment
from filaviva.turns import OPEN, Gate
from filaviva.waking import wake
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.facts import Fact, FiringsLeftOut, ScheduleBroken, ScheduleFired

# now() and not clock_timestamp(): only a stable value can bound an index scan.
_DUE = """
SELECT id FROM filaviva.schedules WHERE enabled AND next_fire_at <= now()
ORDER BY next_fire_at LIMIT $1
"""

_LOCK = """
SELECT schedules.id, schedules.type, schedules.cron, schedules.time_zone, schedules.missed,
    schedules.next_fire_at, contracts.queue, clock_timestamp() AS now
FROM filaviva.schedules LEFT JOIN filaviva.contracts USING (type, version)
WHERE schedules.id = ANY($1::uuid[]) AND enabled AND next_fire_at <= clock_timestamp()
ORDER BY schedules.id FOR NO KEY UPDATE OF schedules SKIP LOCKED
"""

_FIRE = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[])
    AS x(id, schedule_id, key, fingerprint)),
created AS (
    INSERT INTO filaviva.jobs (id, tenant, idempotency_key, fingerprint, type, version, queue,
        payload, max_attempts, priority, labels, subject, submitted_by, correlation_id,
        callback_url)
    SELECT wanted.id, tenant, key, wanted.fingerprint, type, version, contracts.queue, data,
        coalesce(max_attempts, (contracts.policy->>'maxAttempts')::integer, 5), priority, labels,
        subject, submitted_by, key, callback_url
    FROM wanted JOIN filaviva.schedules ON schedules.id = wanted.schedule_id
    JOIN filaviva.contracts USING (type, version)
    ORDER BY tenant, key
    ON CONFLICT DO NOTHING
    RETURNING id, type, version, queue, priority, correlation_id),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT created.id, 'state', jsonb_build_object('status', 'queued', 'reason', 'scheduled',
        'schedule', wanted.schedule_id)
    FROM created JOIN wanted USING (id))
SELECT id AS job_id, 1 AS epoch, 1 AS issue, type, version, queue, priority, correlation_id
FROM created ORDER BY id
"""

_MOVE = """
UPDATE filaviva.schedules AS schedules SET
    next_fire_at = moved.following, fired = schedules.fired + moved.count,
    last_fired_at = coalesce(moved.last, schedules.last_fired_at),
    last_job_id = coalesce(moved.job_id, schedules.last_job_id), error = moved.error
FROM unnest($1::uuid[], $2::timestamptz[], $3::integer[], $4::timestamptz[], $5::uuid[], $6::text[])
    AS moved(id, following, count, last, job_id, error)
WHERE schedules.id = moved.id
"""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A schedule that we hold, and what it has to do; `error`: why it cannot."""

    row: Any
    turn: Turn
    jobs: tuple[UUID, ...]
    error: str | None = None


async def due(connection: AsyncConnection, *, limit: int) -> list[UUID]:
    """Give the schedules whose time has come, the longest overdue first."""
    return list((await connection.exec_driver_sql(_DUE, (limit,))).scalars())


async def fire(
    connection: AsyncConnection, schedules: Sequence[UUID], gate: Gate = OPEN
) -> Decided:
    """Fire those of these schedules that nobody else holds and whose time has not moved."""
    found = (await connection.exec_driver_sql(_LOCK, (sorted(schedules),))).all()
    taken = [_take(row) for row in found]
    if not taken:
        return Decided()
    firings = [firing for each in taken for firing in _firings(each)]
    created: Sequence[Mapping[str, Any]] = ()
    if firings:
        made = await connection.exec_driver_sql(_FIRE, _columns(firings))
        created = [as_dict(row) for row in made]
    await connection.exec_driver_sql(_MOVE, _columns([_moved(each) for each in taken]))
    return Decided(
        rows=await wake(connection, created, gate),
        facts=[fact for each in taken for fact in _facts(each)],
        jobs=frozenset(job["job_id"] for job in created),
    )


def _take(row: Any) -> _Taken:
    try:
        cron = Cron.read(row.cron, row.time_zone)
    except ValueError as unreadable:  # another release of the time zones, or of the library
        return _Taken(row, Turn((), 0, None), (), str(unreadable))
    todo = turn(cron, since=row.next_fire_at, now=row.now, missed=row.missed)
    if row.queue is None:
        error = f"no handler of {row.type} is published any more"
        return _Taken(row, Turn((), len(todo.times) + todo.left_out, todo.following), (), error)
    return _Taken(row, todo, tuple(uuid7() for _ in todo.times))


def _firings(each: _Taken) -> list[tuple[UUID, UUID, str, bytes]]:
    keys = [f"schedule:{each.row.id}:{moment(at)}" for at in each.turn.times]
    return [
        (job_id, each.row.id, key, hashlib.sha256(key.encode()).digest())
        for job_id, key in zip(each.jobs, keys, strict=True)
    ]


def _moved(each: _Taken) -> tuple[Any, ...]:
    last = each.turn.times[-1] if each.turn.times else None
    job = each.jobs[-1] if each.jobs else None
    return each.row.id, each.turn.following, len(each.jobs), last, job, each.error


def _facts(each: _Taken) -> list[Fact]:
    kind, now = each.row.type, each.row.now
    facts: list[Fact] = [
        ScheduleFired(each.row.id, kind, (now - at).total_seconds()) for at in each.turn.times
    ]
    if each.turn.left_out:
        facts.append(FiringsLeftOut(each.row.id, kind, each.turn.left_out))
    if each.error is not None:
        facts.append(ScheduleBroken(each.row.id, each.error))
    return facts


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))
