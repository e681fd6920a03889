"""Remove finished jobs whose time is over, and before that what need not be kept so long.

Before: the job is final, and nobody has to look at it any more.
After: a batch goes as a whole, a job with all that belongs to it; a tombstone says that it is gone.
May happen twice: whoever comes second finds another row, or none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch

# What may go before the job, and the tables that only hold that.
KINDS: Final = ("payload", "result", "steps", "events", "attempts", "llm_calls")
_TABLES: Final = {
    "steps": "steps",
    "events": "job_events",
    "attempts": "attempts",
    "llm_calls": "llm_calls",
}
# Children before their parents.
_WITH_JOB: Final = ("llm_calls", "steps", "attempts", "job_events", "batches", "retries")
_FINAL: Final = "('succeeded', 'failed', 'canceled')"

# By primary key, which is the order of creation: no index on the hot table is paid for this.
_PAGE = f"""
WITH page AS MATERIALIZED (
    SELECT id, type, version, state, parent_id, finished_at, removed FROM filaviva.jobs
    WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3),
kinds AS MATERIALIZED (SELECT * FROM unnest($5::text[], $6::float8[]) AS x(kind, days))
SELECT page.id, page.finished_at, coalesce(batches.total, 0) AS items,
    coalesce(page.parent_id IS NULL AND page.state IN {_FINAL} AND page.finished_at < now()
        - 86400 * coalesce((contracts.policy->>'retentionDays')::float8, $4)
        * interval '1 second', false) AS whole,
    ARRAY(SELECT kind FROM kinds WHERE page.state IN {_FINAL}
        AND page.finished_at < now() - 86400 * days * interval '1 second'
        AND NOT kind = ANY(coalesce(page.removed, '{{}}'))) AS kinds
FROM page LEFT JOIN filaviva.contracts USING (type, version)
LEFT JOIN filaviva.batches ON batches.job_id = page.id
ORDER BY page.id
"""

# As it was seen: a job that was sent back meanwhile, and even one that has ended again, is not it.
_LOCK = f"""
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::timestamptz[]) AS x(id, finished_at)),
locked AS MATERIALIZED (
    SELECT id, state, finished_at FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED)
SELECT id FROM locked JOIN wanted USING (id, finished_at) WHERE locked.state IN {_FINAL}
ORDER BY id
"""
_ITEMS = """
SELECT id, parent_id, state FROM filaviva.jobs WHERE parent_id = ANY($1::uuid[])
ORDER BY id FOR UPDATE SKIP LOCKED
"""
_COUNT_ITEMS = """
SELECT parent_id, count(*) FROM filaviva.jobs WHERE parent_id = ANY($1::uuid[]) GROUP BY parent_id
"""
# Somebody has to look at these, or is about to send them back.
_HELD = """
SELECT DISTINCT job_id FROM filaviva.dead_letters
WHERE job_id = ANY($1::uuid[]) AND status IN ('open', 'replaying')
"""
_LETTERS = """
WITH closed AS MATERIALIZED (
    SELECT id FROM filaviva.dead_letters WHERE job_id = ANY($1::uuid[]) ORDER BY id FOR UPDATE),
listed AS (
    DELETE FROM filaviva.replay_letters WHERE dead_letter_id IN (SELECT id FROM closed))
SELECT id FROM closed
"""
_CLOSED = "DELETE FROM filaviva.dead_letters WHERE id = ANY($1::uuid[])"
_BURY = """
WITH gone AS (DELETE FROM filaviva.jobs WHERE id = ANY($1::uuid[]) RETURNING id, tenant, type)
INSERT INTO filaviva.tombstones (job_id, tenant, type) SELECT * FROM gone ORDER BY id
"""
_TRIM = """
WITH wanted AS MATERIALIZED (
    SELECT id, string_to_array(said, ',') AS kinds
    FROM unnest($1::uuid[], $2::text[]) AS x(id, said))
UPDATE filaviva.jobs SET
    payload = CASE WHEN 'payload' = ANY(kinds) THEN 'null' ELSE payload END,
    result = CASE WHEN 'result' = ANY(kinds) THEN NULL ELSE result END,
    removed = coalesce(removed, '{}') || kinds
FROM wanted WHERE jobs.id = wanted.id
"""


@dataclass(frozen=True, slots=True)
class Aged:
    """A job of a page: does it go as a whole (with so many items), and what of it goes before?"""

    id: UUID
    finished_at: datetime
    items: int
    whole: bool
    kinds: Sequence[str]


async def page(  # noqa: PLR0913 - the bounds of a page, and the periods
    connection: AsyncConnection,
    *,
    after: UUID,
    before: UUID,
    limit: int,
    jobs_days: float,
    kinds: Sequence[tuple[str, float]],
) -> list[Aged]:
    """Give the next jobs in the order of their creation, with what is due of each."""
    names, days = [name for name, _ in kinds], [each for _, each in kinds]
    rows = await fetch(connection, _PAGE, (after, before, limit, jobs_days, names, days))
    return [Aged(*row) for row in rows]


async def remove(connection: AsyncConnection, wanted: Sequence[Aged]) -> int:
    """Remove these jobs, their items and all that belongs to them; return how many jobs went.

    Left for another time: what somebody holds, and what has a letter that nobody has closed.
    """
    families = await _families(connection, await _lock(connection, wanted))
    everyone = sorted(chain.from_iterable(families.values()))
    held = {row[0] for row in await fetch(connection, _HELD, (everyone,))}
    going = sorted(chain.from_iterable(ids for ids in families.values() if not held & {*ids}))
    if not going:
        return 0
    letters = [row[0] for row in await fetch(connection, _LETTERS, (going,))]
    await connection.exec_driver_sql(_CLOSED, (letters,))
    for table in _WITH_JOB:
        await _delete(connection, table, going)
    await connection.exec_driver_sql(_BURY, (going,))
    return len(going)


async def trim(connection: AsyncConnection, wanted: Sequence[Aged]) -> int:
    """Remove what is due of these jobs; return of how many."""
    kinds = {each.id: each.kinds for each in wanted}
    mine = await _lock(connection, wanted)
    held = {row[0] for row in await fetch(connection, _HELD, (mine,))}
    going = [job_id for job_id in mine if job_id not in held]
    if not going:
        return 0
    said = [",".join(kinds[job_id]) for job_id in going]
    await connection.exec_driver_sql(_TRIM, (going, said))
    for kind, table in _TABLES.items():
        await _delete(connection, table, [job_id for job_id in going if kind in kinds[job_id]])
    return len(going)


async def _lock(connection: AsyncConnection, wanted: Iterable[Aged]) -> list[UUID]:
    ordered = sorted(wanted, key=_by_id)
    arguments = ([each.id for each in ordered], [each.finished_at for each in ordered])
    return [row[0] for row in await fetch(connection, _LOCK, arguments)]


async def _families(connection: AsyncConnection, roots: list[UUID]) -> dict[UUID, list[UUID]]:
    """Give each root with its items; without those of which an item is held or not final."""
    families = {root: [root] for root in roots}
    broken = set()
    for item, parent, state in await fetch(connection, _ITEMS, (roots,)):
        families[parent].append(item)
        if state not in ("succeeded", "failed", "canceled"):
            broken.add(parent)
    for parent, count in await fetch(connection, _COUNT_ITEMS, (roots,)):
        if len(families[parent]) != count + 1:
            broken.add(parent)
    return {root: ids for root, ids in families.items() if root not in broken}


async def _delete(connection: AsyncConnection, table: str, jobs: list[UUID]) -> None:
    if jobs:
        statement = f"DELETE FROM filaviva.{table} WHERE job_id = ANY($1::uuid[])"
        await connection.exec_driver_sql(statement, (jobs,))


def _by_id(aged: Aged) -> UUID:
    return aged.id
