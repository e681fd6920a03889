"""Failure groups: dead letters with the same cause, alerted about once in each episode.

An episode ends when the group is resolved, by a person or because its last letter was closed, or
when its snooze has run out; the next failure opens the next one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection
from uuid_utils.compat import uuid7

from filaviva.database import as_dict
from filaviva.database.tables import dead_letters, failure_groups
from filaviva.errors import NotFound, Rejected
from filaviva.fingerprint import TOP_FRAMES, fingerprint, normalise
from filaviva.operations import audit
from filaviva.operations.figures import moment, money
from filaviva.operations.reach import EVERYTHING, Reach

LONGEST_SNOOZE = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something died, as a group keeps it."""

    type: str | None
    reason: str
    error_class: str | None
    error_code: str | None
    message: str
    frames: tuple[str, ...] = ()
    fingerprint: str = field(init=False, default="")

    def __post_init__(self) -> None:
        made = fingerprint(self.type, self.error_class, self.message, self.frames)
        object.__setattr__(self, "fingerprint", made)


@dataclass(frozen=True, slots=True)
class Group:
    """A group right after a failure was added to it."""

    id: UUID
    fingerprint: str
    episode: int
    state: str


# Sorted by fingerprint, as every statement that locks several groups.
_RECORD = """
INSERT INTO filaviva.failure_groups AS present
    (id, fingerprint, type, reason, error_class, error_code, message, frames, count, cost_usd)
SELECT id, fingerprint, type, reason, error_class, error_code, message,
    string_to_array(frames, E'\\n'), count, cost_usd
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::bigint[], $10::numeric[])
    AS x(id, fingerprint, type, reason, error_class, error_code, message, frames, count, cost_usd)
ORDER BY fingerprint
ON CONFLICT (fingerprint) DO UPDATE SET
    (episode, count, cost_usd, first_seen_at, state, snoozed_until, resolved_at) = (
        SELECT present.episode + ended::int,
            excluded.count + CASE WHEN ended THEN 0 ELSE present.count END,
            excluded.cost_usd + CASE WHEN ended THEN 0 ELSE present.cost_usd END,
            CASE WHEN ended THEN clock_timestamp() ELSE present.first_seen_at END,
            CASE WHEN ended THEN 'open' ELSE present.state END,
            CASE WHEN ended THEN NULL ELSE present.snoozed_until END,
            CASE WHEN ended THEN NULL ELSE present.resolved_at END
        FROM (SELECT present.state = 'resolved' OR (present.state = 'snoozed'
            AND present.snoozed_until <= clock_timestamp()) AS ended) AS episode),
    reason = excluded.reason,
    last_seen_at = clock_timestamp()
RETURNING id, fingerprint, episode, state
"""

_ANNOUNCE = """
INSERT INTO filaviva.notifications (group_id, episode, kind, channel)
SELECT id, episode, 'failure', $3 FROM unnest($1::uuid[], $2::int[]) AS x(id, episode)
ON CONFLICT (group_id, episode, kind, channel) DO NOTHING
"""


async def record(
    connection: AsyncConnection, failures: Iterable[tuple[Cause, Decimal]]
) -> dict[str, Group]:
    """Add failures (cause, cost) to their groups; the answer is keyed by fingerprint."""
    causes: dict[str, Cause] = {}
    counts: dict[str, int] = {}
    costs: dict[str, Decimal] = {}
    for cause, cost in failures:
        key = cause.fingerprint
        causes.setdefault(key, cause)
        counts[key] = counts.get(key, 0) + 1
        costs[key] = costs.get(key, Decimal(0)) + cost
    if not causes:
        return {}
    rows = [_row(causes[key], counts[key], costs[key]) for key in sorted(causes)]
    columns = tuple(list(column) for column in zip(*rows, strict=True))
    found = await connection.exec_driver_sql(_RECORD, columns)
    return {
        row.fingerprint: Group(row.id, row.fingerprint, row.episode, row.state) for row in found
    }


def _row(cause: Cause, count: int, cost: Decimal) -> tuple[Any, ...]:
    return (
        uuid7(),
        cause.fingerprint,
        cause.type,
        cause.reason,
        cause.error_class,
        cause.error_code,
        normalise(cause.message),
        "\n".join(frame.replace("\n", " ") for frame in cause.frames[-TOP_FRAMES:]),
        count,
        cost,
    )


async def announce(connection: AsyncConnection, groups: Iterable[Group], *, channel: str) -> None:
    """Ask for one alert for each group that is not snoozed and has none in this episode."""
    open_groups = sorted({group.id: group for group in groups if group.state == "open"}.items())
    if not open_groups:
        return
    ids = [key for key, _ in open_groups]
    episodes = [group.episode for _, group in open_groups]
    await connection.exec_driver_sql(_ANNOUNCE, (ids, episodes, channel))


# The lock first, in a statement of its own: the second one then sees every letter that was filed
# by whoever held it.
_LOCK = """
SELECT id FROM filaviva.failure_groups WHERE id = ANY($1::uuid[])
ORDER BY fingerprint FOR NO KEY UPDATE
"""
_SETTLE = """
UPDATE filaviva.failure_groups AS g SET state = 'resolved', resolved_at = clock_timestamp()
WHERE g.id = ANY($1::uuid[]) AND g.state = 'open' AND NOT EXISTS (
    SELECT FROM filaviva.dead_letters AS l
    WHERE l.group_id = g.id AND l.status IN ('open', 'replaying'))
"""


async def settle(connection: AsyncConnection, ids: Iterable[UUID]) -> None:
    """Resolve those of the groups that have no letter left to look at."""
    wanted = sorted(set(ids))
    if wanted:
        await connection.exec_driver_sql(_LOCK, (wanted,))
        await connection.exec_driver_sql(_SETTLE, (wanted,))


async def page(
    connection: AsyncConnection,
    *,
    reach: Reach = EVERYTHING,
    state: str | None = None,
    after: tuple[datetime, UUID] | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """List groups, the ones seen last first, as far as the caller may see them."""
    groups = failure_groups.c
    query = _groups(reach).order_by(groups.last_seen_at.desc(), groups.id.desc()).limit(limit)
    if state is not None:
        query = query.where(groups.state == state)
    if after is not None:
        query = query.where(tuple_(groups.last_seen_at, groups.id) < tuple_(*map(literal, after)))
    return [_public(as_dict(row)) for row in await connection.execute(query)]


async def get(
    connection: AsyncConnection, group_id: UUID, *, reach: Reach = EVERYTHING
) -> dict[str, Any]:
    """Show one group; raises NotFound if it has no letter the caller may see."""
    query = _groups(reach).where(failure_groups.c.id == group_id)
    row = (await connection.execute(query)).first()
    if row is None:
        raise NotFound(f"found no failure group {group_id}")
    return _public(as_dict(row))


def _groups(reach: Reach) -> Any:
    # Counted from the letters in reach: the group's own figures add up all tenants.
    letters = (
        select(
            func.count().label("letters"),
            func.count().filter(dead_letters.c.status.in_(("open", "replaying"))).label("open"),
            func.coalesce(func.sum(dead_letters.c.cost_usd), 0).label("spent"),
        )
        .where(dead_letters.c.group_id == failure_groups.c.id, reach.letters())
        .lateral("seen")
    )
    columns = (letters.c.letters, letters.c.open, letters.c.spent)
    return select(failure_groups, *columns).join(letters, letters.c.letters > 0)


def _public(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "fingerprint": row["fingerprint"],
        "type": row["type"],
        "reason": row["reason"],
        "errorClass": row["error_class"],
        "errorCode": row["error_code"],
        "message": row["message"],
        "frames": row["frames"] or [],
        "state": row["state"],
        "episode": row["episode"],
        "count": row["letters"],
        "open": row["open"],
        "costUsd": money(row["spent"]),
        "firstSeenAt": moment(row["first_seen_at"]),
        "lastSeenAt": moment(row["last_seen_at"]),
        "snoozedUntil": moment(row["snoozed_until"]),
        "resolvedAt": moment(row["resolved_at"]),
    }


_SNOOZE = """
UPDATE filaviva.failure_groups
SET state = 'snoozed', snoozed_until = clock_timestamp() + make_interval(secs => $2)
WHERE id = $1 AND state <> 'resolved' RETURNING id
"""
_RESOLVE = """
UPDATE filaviva.failure_groups
SET state = 'resolved', resolved_at = clock_timestamp(), snoozed_until = NULL
WHERE id = $1 RETURNING id
"""


async def snooze(  # noqa: PLR0913 - each is a word of the request
    connection: AsyncConnection,
    group_id: UUID,
    *,
    author: str,
    seconds: float,
    reason: str | None = None,
    reach: Reach = EVERYTHING,
) -> dict[str, Any]:
    """Be silent about the group for so many seconds; a resolved one cannot be snoozed."""
    if not 0 < seconds <= LONGEST_SNOOZE:
        detail = f"found {seconds} seconds, expected more than 0 and at most {LONGEST_SNOOZE:.0f}"
        raise Rejected("invalid_data", detail, status=422)
    await _own(connection, group_id, reach)
    done = await connection.exec_driver_sql(_SNOOZE, (group_id, float(seconds)))
    if done.first() is None:
        raise Rejected("conflict", f"failure group {group_id} is resolved already", status=409)
    await audit.record(
        connection,
        author=author,
        action="failure_group.snoozed",
        tenant=reach.tenant,
        target=str(group_id),
        detail={"seconds": seconds, "reason": reason},
    )
    return await get(connection, group_id, reach=reach)


async def resolve(
    connection: AsyncConnection,
    group_id: UUID,
    *,
    author: str,
    reason: str | None = None,
    reach: Reach = EVERYTHING,
) -> dict[str, Any]:
    """End the episode; the next failure of this cause is told again. Its letters stay."""
    await _own(connection, group_id, reach)
    await connection.exec_driver_sql(_RESOLVE, (group_id,))
    await audit.record(
        connection,
        author=author,
        action="failure_group.resolved",
        tenant=reach.tenant,
        target=str(group_id),
        detail={"reason": reason},
    )
    return await get(connection, group_id, reach=reach)


async def _own(connection: AsyncConnection, group_id: UUID, reach: Reach) -> None:
    """Refuse who would silence another tenant's alerts."""
    await get(connection, group_id, reach=reach)
    beyond = select(dead_letters.c.id).where(dead_letters.c.group_id == group_id, ~reach.letters())
    if reach.tenant is not None and (await connection.execute(beyond.limit(1))).first():
        detail = f"failure group {group_id} has letters of other tenants: an operator decides"
        raise Rejected("forbidden", detail, status=403)
