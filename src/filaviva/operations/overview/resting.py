"""What lies: dead letters that wait for a person, messages that nobody has confirmed.

Before: nothing. After: how many, since when, and why. May happen twice: it only reads.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.operations.overview.figures import NONE, Cause, Chosen, Count, Letters, Outbox

MOST: Final = 2_000
_CAUSES: Final = 5

_OPEN: Final = """
FROM (SELECT id, type, group_id, created_at FROM filaviva.dead_letters
      WHERE status IN ('open', 'replaying') ORDER BY created_at LIMIT $1) AS letter
"""
_LETTERS: Final = f"SELECT type, group_id, count(*) {_OPEN} GROUP BY 1, 2"
_OLDEST_LETTER: Final = f"""
SELECT id, type, extract(epoch FROM now() - created_at)::float8 {_OPEN}
WHERE $2::text[] = '{{}}' OR type = ANY($2::text[]) LIMIT 1
"""
_GROUPS: Final = """
SELECT id, type, reason, error_code, message FROM filaviva.failure_groups
WHERE id = ANY($1::uuid[])
"""
_OUTBOX: Final = """
SELECT count(*), count(parked_at), max(error) FILTER (WHERE parked_at IS NOT NULL)
FROM (SELECT parked_at, error FROM filaviva.outbox ORDER BY id LIMIT $1) AS row
"""
_OLDEST_ROW: Final = """
SELECT id, exchange || ' ' || routing_key, extract(epoch FROM now() - created_at)::float8
FROM (SELECT * FROM filaviva.outbox ORDER BY id LIMIT $1) AS row
WHERE parked_at IS NULL LIMIT 1
"""
_TURNS: Final = """
SELECT EXISTS (SELECT FROM filaviva.turns)
    AND NOT EXISTS (SELECT FROM filaviva.turn_keeper WHERE until > clock_timestamp())
"""
_SERVICES: Final = """
SELECT service, count(*) FROM filaviva.processes
WHERE stopped_at IS NULL AND last_seen_at > now() - interval '1 minute' GROUP BY 1
"""


async def letters(connection: AsyncConnection, chosen: Chosen) -> Letters:
    """Look at the open dead letters."""
    rows = await fetch(connection, _LETTERS, (MOST,))
    more = sum(row[2] for row in rows) >= MOST
    by_type: dict[str | None, Count] = {}
    by_group: dict[UUID, Count] = {}
    for kind, group, count in rows:
        if chosen.type(kind):
            by_type[kind] = by_type.get(kind, NONE) + Count(count, more)
            by_group[group] = by_group.get(group, NONE) + Count(count, more)
    oldest = await fetch(connection, _OLDEST_LETTER, (MOST, list(chosen.types)))
    return Letters(by_type, await _causes(connection, by_group), *(oldest[0] if oldest else ()))


async def _causes(connection: AsyncConnection, by_group: Mapping[UUID, Count]) -> Sequence[Cause]:
    most = sorted(by_group, key=lambda group: -by_group[group].number)[:_CAUSES]
    rows = await fetch(connection, _GROUPS, (most,)) if most else ()
    found = [Cause(*(*row, by_group[row[0]])) for row in rows]
    return sorted(found, key=lambda each: -each.letters.number)


async def outbox(connection: AsyncConnection) -> Outbox:
    """Look at what has not left yet."""
    ((pending, parked, error),) = await fetch(connection, _OUTBOX, (MOST,))
    rows = await fetch(connection, _OLDEST_ROW, (MOST,))
    oldest: Sequence[Any] = rows[0] if rows else (None, None, None)
    ((turns,),) = await fetch(connection, _TURNS)
    return Outbox(
        pending=Count(pending - parked, pending >= MOST),
        parked=parked,
        oldest_id=oldest[0],
        oldest_route=oldest[1],
        oldest_seconds=oldest[2],
        error=error,
        turns_without_keeper=turns,
    )


async def services(connection: AsyncConnection) -> Mapping[str, int] | None:
    """Count the processes that are heard of, by service; None while nobody tells of itself."""
    rows = await fetch(connection, _SERVICES)
    return {row[0]: row[1] for row in rows} or None
