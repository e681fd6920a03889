"""Fire schedules whose time has come: a job each, and the row's next time, in one commit.

Before: the row is enabled, and its next time has come, or one that waits is looked at again.
After: its jobs are queued, their wake-ups leave with the caller's commit, the next time is later;
what a limit or the job before keeps back waits in the row.
May happen twice: whoever comes second finds the row locked or its time moved; and a job's key is
the schedule and the time it was fired for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import uses
from filaviva.cron import Cron, Turn, turn
from filaviva.database.fetch import fetch
from filaviva.errors import Rejected
from filaviva.events import DEFAULT_TENANT
from filaviva.operations.quotas import Quotas
from filaviva.turns import OPEN, Gate
from filaviva_retry_scheduler import agenda
from filaviva_retry_scheduler.agenda import Plan
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.facts import (
    Fact,
    FiringsHeld,
    FiringsLeftOut,
    FiringsSkipped,
    ScheduleBroken,
    ScheduleFired,
)
from filaviva_retry_scheduler.fired_jobs import Firing, store

# now() and not clock_timestamp(): only a stable value can bound an index scan.
_DUE = """
SELECT id FROM (
    (SELECT id, next_fire_at AS at FROM filaviva.schedules
     WHERE enabled AND next_fire_at <= now() ORDER BY next_fire_at LIMIT $1)
    UNION ALL
    (SELECT id, look_again_at FROM filaviva.schedules
     WHERE enabled AND look_again_at <= now() ORDER BY look_again_at LIMIT $1)) AS due
GROUP BY id ORDER BY min(at) LIMIT $1
"""

_LOCK = """
SELECT schedules.id, schedules.name, schedules.type, schedules.version, schedules.cron,
    schedules.time_zone, schedules.missed, schedules.overlap, schedules.waiting,
    schedules.tenant, schedules.subject, schedules.next_fire_at,
    contracts.queue, clock_timestamp() AS now,
    coalesce(jsonb_array_length(schedules.items), 1) AS jobs,
    schedules.items IS NOT NULL AS batch,
    EXISTS (SELECT FROM filaviva.jobs WHERE jobs.id = schedules.last_job_id
        AND jobs.state IN ('queued', 'running', 'cancel_requested')) AS busy
FROM filaviva.schedules LEFT JOIN filaviva.contracts USING (type, version)
WHERE schedules.id = ANY($1::uuid[]) AND enabled
    AND (next_fire_at <= clock_timestamp() OR look_again_at <= clock_timestamp())
ORDER BY schedules.id FOR NO KEY UPDATE OF schedules SKIP LOCKED
"""

_MOVE = """
WITH moved AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::int[], $4::timestamptz[], $5::uuid[],
        $6::int[], $7::timestamptz[], $8::text[], $9::timestamptz[], $10::text[])
    AS x(id, following, count, last, job_id, skipped, last_skipped, waiting, look_again, error))
UPDATE filaviva.schedules AS schedules SET
    next_fire_at = moved.following, fired = schedules.fired + moved.count,
    last_fired_at = coalesce(moved.last, schedules.last_fired_at),
    last_job_id = coalesce(moved.job_id, schedules.last_job_id),
    skipped = schedules.skipped + moved.skipped,
    last_skipped_at = coalesce(moved.last_skipped, schedules.last_skipped_at),
    waiting = moved.waiting::timestamptz[], look_again_at = moved.look_again, error = moved.error
FROM moved WHERE schedules.id = moved.id
"""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A schedule that we hold, and what it has to do; `error`: why it cannot, or waits."""

    row: Any
    turn: Turn
    plan: Plan
    firings: tuple[Firing, ...] = ()
    pause: float = 0.0  # what a limit says about coming again
    error: str | None = None
    broken: bool = False


async def due(connection: AsyncConnection, *, limit: int) -> list[UUID]:
    """Give the schedules whose time has come, the longest overdue first."""
    return list((await connection.exec_driver_sql(_DUE, (limit,))).scalars())


async def fire(
    connection: AsyncConnection,
    schedules: Sequence[UUID],
    gate: Gate = OPEN,
    quotas: Quotas | None = None,
) -> Decided:
    """Fire those of these schedules that nobody else holds and whose time has not moved."""
    found = (await connection.exec_driver_sql(_LOCK, (sorted(schedules),))).all()
    taken = await _within_limits(connection, [_take(row) for row in found], quotas)
    if not taken:
        return Decided()
    stored = await store(connection, [one for each in taken for one in each.firings], gate)
    await uses.add(connection, _uses(taken))
    await fetch(connection, _MOVE, _columns([_moved(each) for each in taken]))
    return Decided(
        rows=stored.rows, facts=[fact for each in taken for fact in _facts(each)], jobs=stored.jobs
    )


def _take(row: Any) -> _Taken:
    try:
        cron = Cron.read(row.cron, row.time_zone)
    except ValueError as unreadable:  # another release of the time zones, or of the library
        return _Taken(row, Turn((), 0, None), Plan(), error=str(unreadable), broken=True)
    todo = _turn(cron, row)
    if row.queue is None:
        error = f"no handler of {row.type} is published any more"
        lost = Plan(left_out=len(todo.times) + todo.left_out + len(row.waiting))
        return _Taken(row, todo, lost, error=error, broken=True)
    made = agenda.plan(todo.times, waiting=row.waiting, overlap=row.overlap, busy=row.busy)
    made = replace(made, left_out=made.left_out + todo.left_out)
    return _Taken(row, todo, made, tuple(Firing.of(row, at) for at in made.fire))


def _turn(cron: Cron, row: Any) -> Turn:
    if row.next_fire_at is None or row.next_fire_at > row.now:  # only those that wait are due
        return Turn((), 0, row.next_fire_at)
    return turn(cron, since=row.next_fire_at, now=row.now, missed=row.missed)


async def _within_limits(
    connection: AsyncConnection, taken: Sequence[_Taken], quotas: Quotas | None
) -> Sequence[_Taken]:
    """Keep waiting what is over a limit: nobody is there who could come again."""
    firings = [firing for each in taken for firing in each.firings]
    if quotas is None or not firings:
        return taken
    refused = await quotas.refusals(connection, firings)
    return [_held(each, refused) for each in taken] if refused else taken


def _held(each: _Taken, refused: Mapping[tuple[str, str], Rejected]) -> _Taken:
    mine = {one.at: why for one in each.firings if (why := refused.get(one.name)) is not None}
    if not mine:
        return each
    first = mine[min(mine)]
    return replace(
        each,
        plan=each.plan.without(mine.keys()),
        firings=tuple(one for one in each.firings if one.at not in mine),
        pause=first.retry_after or 0.0,
        error=f"{len(mine)} firing(s) wait: {first.detail}",
    )


def _moved(each: _Taken) -> tuple[Any, ...]:
    last = each.firings[-1] if each.firings else None
    made, now = each.plan, each.row.now
    again = agenda.look_again(made.wait, now=now, pause=each.pause) if made.wait else None
    return (
        each.row.id,
        each.turn.following,
        len(each.firings),
        None if last is None else last.at,
        None if last is None else last.job_id,
        len(made.skip),
        made.skip[-1] if made.skip else None,
        _array(made.wait),
        again,
        each.error,
    )


def _uses(taken: Sequence[_Taken]) -> Counter[uses.Use]:
    """Tell what is sent by which schedule: others count under other names, and nobody waits."""
    counted: Counter[uses.Use] = Counter()
    for each in taken:
        row = each.row
        name = row.name if row.tenant == DEFAULT_TENANT else f"{row.tenant}/{row.name}"
        for firing in each.firings:
            counted[row.type, row.version, f"schedule:{name}"] += firing.jobs
    return counted


def _facts(each: _Taken) -> list[Fact]:
    kind, schedule, made = each.row.type, each.row.id, each.plan
    facts: list[Fact] = [
        ScheduleFired(schedule, kind, (each.row.now - one.at).total_seconds())
        for one in each.firings
    ]
    if made.left_out:
        facts.append(FiringsLeftOut(schedule, kind, made.left_out))
    if made.skip:
        facts.append(FiringsSkipped(schedule, kind, len(made.skip)))
    held = len(set(made.wait) - set(each.row.waiting))
    if held:
        facts.append(
            FiringsHeld(schedule, kind, held, each.error or "the job before has not ended")
        )
    if each.broken and each.error is not None:
        facts.append(ScheduleBroken(schedule, each.error))
    return facts


def _array(moments: Sequence[datetime]) -> str:
    """Write them as PostgreSQL reads an array: unnest takes no array of arrays of many lengths."""
    return "{" + ",".join(f'"{moment.isoformat()}"' for moment in moments) + "}"


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))
