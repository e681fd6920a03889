"""Places of limited tenants and subjects: who may run, who is kept back, who follows.

Before: a limit says how many jobs run at the same time. After `free`: as many may be claimed as
there are places, while the tenant's row is locked. After `release`: who was kept back is queued
again where a place is free, its wake-up in the outbox.
May happen twice: whoever counts holds the tenant's row, and counts what the others committed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import outbox
from filaviva.database.fetch import fetch
from filaviva.limits import TenantLimits
from filaviva.operations.submission import PRIORITIES
from filaviva.outbox import OutboxRow
from filaviva.wakeups import wake_up

PARKED: Final = "limit"
MOST: Final = 200  # released at once where nothing limits it any more
_SUBJECTS: Final = 1000  # of a tenant, in one look
# By how many seconds an urgent job may be younger, and still goes first.
_BEHIND: Final = {PRIORITIES["high"]: 0.0, PRIORITIES["normal"]: 120.0, PRIORITIES["low"]: 600.0}

Whose: TypeAlias = tuple[str, str]  # tenant; subject, or "" for none

# Made first and locked after, both in key order; before any job's row is locked.
_MAKE = """
INSERT INTO filaviva.running_keys (key) SELECT key FROM unnest($1::text[]) AS x(key) ORDER BY key
ON CONFLICT DO NOTHING
"""
_LOCK = """
SELECT key, released, epochs FROM filaviva.running_keys
WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE
"""
# A batch that runs has no lease: only its items take places. The comparison with the lease keeps
# the planner in the index of what is leased.
_RUNNING = """
SELECT tenant, coalesce(subject, ''), count(*) FROM filaviva.jobs
WHERE state IN ('running', 'cancel_requested') AND lease_expires_at > '-infinity'
    AND tenant = ANY($1::text[])
GROUP BY 1, 2
"""
_ON_THEIR_WAY = """
SELECT jobs.id, jobs.epoch, coalesce(jobs.subject, '')
FROM unnest($1::uuid[], $2::bigint[]) AS x(id, epoch) JOIN filaviva.jobs AS jobs USING (id, epoch)
WHERE jobs.state = 'queued' AND jobs.parked_reason IS NULL
"""
_KEPT_BACK = """
WITH RECURSIVE subjects(subject) AS (
    (SELECT coalesce(subject, '') FROM filaviva.jobs
     WHERE parked_reason = 'limit' AND tenant = $1 AND coalesce(subject, '') >= $2
     ORDER BY tenant, coalesce(subject, '') LIMIT 1)
    UNION ALL
    SELECT following.subject FROM subjects CROSS JOIN LATERAL (
        SELECT coalesce(jobs.subject, '') AS subject FROM filaviva.jobs AS jobs
        WHERE parked_reason = 'limit' AND jobs.tenant = $1
            AND coalesce(jobs.subject, '') > subjects.subject
        ORDER BY jobs.tenant, coalesce(jobs.subject, '') LIMIT 1) AS following)
SELECT subject FROM subjects LIMIT $3
"""
_TENANTS = """
WITH RECURSIVE tenants(tenant) AS (
    (SELECT tenant FROM filaviva.jobs WHERE parked_reason = 'limit' ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT following.tenant FROM tenants CROSS JOIN LATERAL (
        SELECT jobs.tenant FROM filaviva.jobs AS jobs
        WHERE parked_reason = 'limit' AND jobs.tenant > tenants.tenant
        ORDER BY jobs.tenant LIMIT 1) AS following)
SELECT tenant FROM tenants
"""
_PARK = """
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS x(id, epoch)),
locked AS MATERIALIZED (
    SELECT id, state, epoch, parked_reason FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT locked.id FROM locked JOIN wanted USING (id, epoch)
    WHERE locked.state = 'queued' AND locked.parked_reason IS NULL)
UPDATE filaviva.jobs SET parked_reason = 'limit', updated_at = clock_timestamp()
FROM mine WHERE jobs.id = mine.id
"""
# Each class in the order of the index; who is of low priority comes at last, since those that are
# submitted long after him are behind him.
_RELEASE = """
WITH offered AS MATERIALIZED (
    SELECT x.subject, x.room, picked.id, picked.turn
    FROM unnest($2::text[], $3::int[]) AS x(subject, room)
    CROSS JOIN unnest($5::smallint[], $6::float8[]) AS class(priority, seconds)
    CROSS JOIN LATERAL (
        SELECT id, created_at + class.seconds * interval '1 second' AS turn FROM filaviva.jobs
        WHERE parked_reason = 'limit' AND tenant = $1 AND coalesce(jobs.subject, '') = x.subject
            AND jobs.priority = class.priority
        ORDER BY id LIMIT x.room) AS picked),
allowed AS MATERIALIZED (
    SELECT id, turn, room, row_number() OVER (PARTITION BY subject ORDER BY turn, id) AS nth
    FROM offered),
chosen AS MATERIALIZED (SELECT id FROM allowed WHERE nth <= room ORDER BY turn, id LIMIT $4),
locked AS MATERIALIZED (
    SELECT id, state, parked_reason FROM filaviva.jobs
    WHERE id = ANY(ARRAY(SELECT id FROM chosen)) ORDER BY id FOR NO KEY UPDATE)
UPDATE filaviva.jobs AS jobs SET parked_reason = NULL, epoch = jobs.epoch + 1, issue = 1,
    reissued_at = NULL, queued_at = clock_timestamp(), updated_at = clock_timestamp()
FROM locked
WHERE jobs.id = locked.id AND locked.state = 'queued' AND locked.parked_reason = 'limit'
RETURNING jobs.id AS job_id, jobs.epoch, jobs.issue, jobs.type, jobs.version, jobs.queue,
    jobs.priority, jobs.correlation_id, jobs.traceparent, jobs.not_before
"""
_REMEMBER = "UPDATE filaviva.running_keys SET released = $2, epochs = $3 WHERE key = $1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job that could run now."""

    id: UUID
    epoch: int
    tenant: str
    subject: str


async def tenants_kept_back(connection: AsyncConnection) -> list[str]:
    """Give the tenants some of whose jobs are kept back by a limit."""
    return [row[0] for row in await fetch(connection, _TENANTS)]


async def free(
    connection: AsyncConnection, limits: TenantLimits, wanted: Sequence[Wanted]
) -> set[UUID]:
    """Lock these jobs' tenants and tell which of the jobs have a place, in the order given."""
    tenants = sorted({one.tenant for one in wanted})
    await _lock(connection, tenants)
    running = await _running(connection, tenants)
    granted: set[UUID] = set()
    for one in wanted:
        if _room(limits, running, one.tenant) and _room(limits, running, one.tenant, one.subject):
            granted.add(one.id)
            running[one.tenant, one.subject] += 1
    return granted


async def park(connection: AsyncConnection, jobs: Iterable[Wanted]) -> None:
    """Keep these jobs back until a place is free; their wake-ups are used up."""
    ordered = sorted((one.id, one.epoch) for one in jobs)
    columns = ([job for job, _ in ordered], [epoch for _, epoch in ordered])
    await fetch(connection, _PARK, columns)


async def release(
    connection: AsyncConnection, limits: TenantLimits, tenant: str
) -> list[OutboxRow]:
    """Queue what this tenant's limits kept back, where a place is free by now."""
    ((key, released, epochs),) = await _lock(connection, [tenant])
    running = await _running(connection, [tenant])
    coming = await fetch(connection, _ON_THEIR_WAY, (released, epochs))
    # Who was released and is not claimed yet has its place already.
    for _, _, subject in coming:
        running[tenant, subject] += 1
    most = _room(limits, running, tenant)
    rooms = await _rooms(connection, limits, running, tenant, most) if most else {}
    rows: list[Any] = []
    if rooms:
        behind = ([*_BEHIND], [*_BEHIND.values()])
        arguments = (tenant, [*rooms], [*rooms.values()], most, *behind)
        found = await connection.exec_driver_sql(_RELEASE, arguments)
        rows = list(found.mappings())
    still = [(row[0], row[1]) for row in coming] + [(row["job_id"], row["epoch"]) for row in rows]
    await fetch(connection, _REMEMBER, (key, [job for job, _ in still], [n for _, n in still]))
    return await outbox.add(connection, [wake_up(**row) for row in rows])


async def _rooms(
    connection: AsyncConnection,
    limits: TenantLimits,
    running: Counter[Whose],
    tenant: str,
    most: int,
) -> dict[str, int]:
    """Find subjects with jobs that are kept back, and a free place each.

    Where only subjects are limited, enough of them: the others' turn comes. Where they share the
    tenant's places all of them, so that the oldest of all jobs comes first.
    """
    shared = limits.tenant(tenant).running is not None
    rooms: dict[str, int] = {}
    seen = ""
    while shared or sum(rooms.values()) < MOST:
        page = [row[0] for row in await fetch(connection, _KEPT_BACK, (tenant, seen, _SUBJECTS))]
        found = {subject: _room(limits, running, tenant, subject) for subject in page}
        rooms |= {subject: min(room, most) for subject, room in found.items() if room}
        if len(page) < _SUBJECTS:
            break
        seen = page[-1]  # the next page begins with it once more
    return rooms


async def _lock(connection: AsyncConnection, tenants: Collection[str]) -> Sequence[Any]:
    keys = sorted(f"tenant:{tenant}" for tenant in tenants)
    await fetch(connection, _MAKE, (keys,))
    return await fetch(connection, _LOCK, (keys,))


async def _running(connection: AsyncConnection, tenants: Collection[str]) -> Counter[Whose]:
    found = await fetch(connection, _RUNNING, (sorted(tenants),))
    return Counter({(tenant, subject): count for tenant, subject, count in found})


def _room(
    limits: TenantLimits, running: Counter[Whose], tenant: str, subject: str | None = None
) -> int:
    """Count the free places of a tenant, or of one of its subjects."""
    if subject is None:
        most = limits.tenant(tenant).running
        taken = sum(count for (whose, _), count in running.items() if whose == tenant)
    else:
        most = limits.subject(tenant, subject).running
        taken = running[tenant, subject]
    return MOST if most is None else max(0, min(MOST, most - taken))
