"""Jobs that wait, from the index by which they come due.

Before: nothing. After: how many wait and pause on each queue, since when, and who is first. May
happen twice: it only reads. However many wait, no look reads more than so many of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.operations.overview.figures import NONE, Chosen, Count, Oldest

# Rows of the index that one look reads, all queues together.
MOST: Final = 4_000
_LEAST: Final = 200

# From queue to queue through the index, however many jobs wait on each. Callbacks and drills are
# ours: they are shown where there is something to see.
_QUEUES: Final = """
WITH RECURSIVE held(queue) AS (
    (SELECT queue FROM filaviva.jobs WHERE state = 'queued'
     ORDER BY queue, greatest(queued_at, not_before) LIMIT 1)
    UNION ALL
    SELECT following.queue FROM held CROSS JOIN LATERAL (
        SELECT jobs.queue FROM filaviva.jobs AS jobs
        WHERE state = 'queued' AND jobs.queue > held.queue
        ORDER BY jobs.queue, greatest(queued_at, not_before) LIMIT 1) AS following)
SELECT queue FROM held
UNION SELECT queue FROM filaviva.contracts
WHERE queue IS NOT NULL AND deprecated_at IS NULL AND type NOT LIKE 'filaviva.%'
"""
_WALK: Final = """
FROM unnest($1::text[]) AS wanted(queue) CROSS JOIN LATERAL (
    SELECT id, type, attempt, parked_reason, not_before,
        greatest(queued_at, not_before) AS due
    FROM filaviva.jobs AS jobs
    WHERE state = 'queued' AND jobs.queue = wanted.queue
        AND greatest(queued_at, not_before) {side} now()
    ORDER BY greatest(queued_at, not_before) LIMIT $2) AS job
"""
_DUE: Final = f"""
SELECT queue, type, parked_reason, count(*) {_WALK.format(side="<=")} GROUP BY 1, 2, 3
"""
_PAUSED: Final = f"""
SELECT queue, type, count(*), extract(epoch FROM min(due) - now())::float8
{_WALK.format(side=">")} GROUP BY 1, 2
"""
_OLDEST: Final = f"""
SELECT found.* FROM unnest($1::text[]) AS asked(name) CROSS JOIN LATERAL (
    SELECT job.id, queue, job.type, extract(epoch FROM now() - due)::float8, attempt
    {_WALK.format(side="<=").replace("$1::text[]", "ARRAY[asked.name]")}
    WHERE parked_reason IS NULL AND ($3::text[] = '{{}}' OR type = ANY($3::text[]))
    LIMIT 1) AS found
"""
_OVERDUE: Final = _OLDEST.replace("    LIMIT 1", "        AND not_before IS NOT NULL LIMIT 1")


@dataclass(slots=True)
class Waiting:
    """What waits on one queue."""

    waiting: Count = NONE
    paused: Count = NONE
    next_due: float | None = None
    parked: dict[str, Count] = field(default_factory=dict)
    oldest: Oldest | None = None
    overdue: Oldest | None = None


async def queues(connection: AsyncConnection) -> Sequence[str]:
    """Name the queues on which something waits, or for which there is a contract."""
    return sorted(row[0] for row in await fetch(connection, _QUEUES))


async def look(
    connection: AsyncConnection, names: Sequence[str], chosen: Chosen
) -> Mapping[str, Waiting]:
    """Look at these queues."""
    most = max(_LEAST, MOST // max(1, len(names)))
    found: dict[str, Waiting] = {name: Waiting() for name in names}
    await _due(connection, found, most, chosen)
    await _paused(connection, found, most, chosen)
    for statement, name in ((_OLDEST, "oldest"), (_OVERDUE, "overdue")):
        wanted = (list(found), most, list(chosen.types))
        for row in await fetch(connection, statement, wanted):
            setattr(found[row[1]], name, Oldest(*row))
    return found


async def _due(
    connection: AsyncConnection, found: Mapping[str, Waiting], most: int, chosen: Chosen
) -> None:
    rows = await fetch(connection, _DUE, (list(found), most))
    full = _full(((row[0], row[3]) for row in rows), most)
    for queue, kind, reason, jobs in rows:
        if not chosen.type(kind):
            continue
        count, here = Count(jobs, more=queue in full), found[queue]
        if reason is None:
            here.waiting += count
        else:
            here.parked[reason] = here.parked.get(reason, NONE) + count


async def _paused(
    connection: AsyncConnection, found: Mapping[str, Waiting], most: int, chosen: Chosen
) -> None:
    rows = await fetch(connection, _PAUSED, (list(found), most))
    full = _full(((row[0], row[2]) for row in rows), most)
    for queue, kind, jobs, due_in in rows:
        if chosen.type(kind):
            here = found[queue]
            here.paused += Count(jobs, more=queue in full)
            here.next_due = due_in if here.next_due is None else min(due_in, here.next_due)


def _full(rows: Iterable[tuple[str, int]], most: int) -> set[str]:
    """Name the queues of which the look has not seen the end."""
    seen: dict[str, int] = defaultdict(int)
    for queue, jobs in rows:
        seen[queue] += jobs
    return {queue for queue, jobs in seen.items() if jobs >= most}
