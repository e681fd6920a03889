"""Follow jobs by their timelines: where one stands now, and what is new in many of them.

Before: somebody watches. After: rows as they are now. May happen twice: reading changes nothing.
An entry is written while its job's row is locked, so in one timeline the order of the ids is the
order of the commits: whoever reads on after the last id it has seen misses nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import tables
from filaviva.operations import jobs
from filaviva.operations.jobs import Event, Job, Reach

FINAL: Final = frozenset(("succeeded", "failed", "canceled"))
TOLD: Final = ("state", "progress", "item", "attempt")  # the kinds that followers are told

# By primary key, whatever the planner believes of the jobs' states.
_NEWS = """
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS x(id, after)),
standing AS MATERIALIZED (SELECT id, state FROM filaviva.jobs WHERE id = ANY($1::uuid[]))
SELECT wanted.id AS job_id, standing.state, entry.id, entry.at, entry.kind, entry.data
FROM wanted LEFT JOIN standing USING (id) LEFT JOIN LATERAL (
    SELECT id, at, kind, data::text AS data FROM filaviva.job_events
    WHERE job_id = wanted.id AND id > wanted.after AND kind = ANY($3::text[])
    ORDER BY id LIMIT $4) AS entry ON true
ORDER BY wanted.id, entry.id
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """A job and the last entry of its timeline, both as of the same moment."""

    job: Job
    last: int


@dataclass(frozen=True, slots=True)
class News:
    """What is new in a timeline; `ended`: the job is final (or gone) and this is all of it."""

    entries: tuple[Event, ...]
    ended: bool
    more: bool


async def standing(connection: AsyncConnection, job_id: UUID, reach: Reach) -> Standing:
    """Tell where a job stands; NotFound if there is none, or none within reach."""
    table = tables.job_events
    # One statement is one snapshot: the job cannot be newer or older than the entry.
    last = (
        select(func.coalesce(func.max(table.c.id), 0))
        .where(table.c.job_id == job_id, table.c.kind.in_(TOLD))
        .scalar_subquery()
    )
    found, (at,) = await jobs.get_with(connection, job_id, reach, last)
    return Standing(found, at)


async def news(
    connection: AsyncConnection, after: Mapping[UUID, int], *, most: int
) -> dict[UUID, News]:
    """Give for each of these jobs what its timeline has after an id, at most so many entries."""
    asked = sorted(after.items())
    ids, positions = [one for one, _ in asked], [position for _, position in asked]
    rows = await connection.exec_driver_sql(_NEWS, (ids, positions, list(TOLD), most))
    entries: dict[UUID, list[Event]] = {job_id: [] for job_id in ids}
    states: dict[UUID, str | None] = {}
    for row in rows:
        states[row.job_id] = row.state
        if row.id is not None:
            entries[row.job_id].append(Event(row.id, row.at, row.kind, row.data))
    return {job_id: _news(found, states[job_id], most) for job_id, found in entries.items()}


def _news(entries: list[Event], state: str | None, most: int) -> News:
    more = len(entries) == most
    ended = not more and (state is None or state in FINAL)
    return News(tuple(entries), ended, more)
