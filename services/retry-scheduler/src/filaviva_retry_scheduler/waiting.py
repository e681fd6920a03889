"""The lines of jobs that wait for a turn, as they stand in the database.

Before: rows of `turns`, and of `upcoming` until their time has come. After `take`: the rows that
were chosen are gone, and an outbox row for each of those jobs leaves with the caller's commit.
May happen twice: whoever comes second finds the rows gone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import outbox, wakeups
from filaviva.broker.topology import Topology
from filaviva.database.fetch import fetch
from filaviva.outbox import OutboxRow
from filaviva_retry_scheduler.shares import Offer

Place: TypeAlias = tuple[str, str, int]  # queue, tenant, priority
START: Place = ("", "", -1)

# Skips from line to line in the index, however many wait in each. A tenant whose own limit keeps
# jobs back already gets no turns: they would only wait there.
_WALK = """
WITH RECURSIVE lines(queue, tenant, priority) AS (
    (SELECT queue, tenant, priority FROM filaviva.turns
     WHERE (queue, tenant, priority) > ($1::text, $2::text, $3::smallint)
     ORDER BY queue, tenant, priority LIMIT 1)
    UNION ALL
    SELECT following.* FROM lines CROSS JOIN LATERAL (
        SELECT turns.queue, turns.tenant, turns.priority FROM filaviva.turns AS turns
        WHERE (turns.queue, turns.tenant, turns.priority)
            > (lines.queue, lines.tenant, lines.priority)
        ORDER BY turns.queue, turns.tenant, turns.priority LIMIT 1) AS following)
"""
_LINES = f"""{_WALK}
SELECT queue, tenant, priority, $5::boolean AND EXISTS (
    SELECT FROM filaviva.jobs WHERE parked_reason = 'limit' AND jobs.tenant = lines.tenant)
FROM lines LIMIT $4
"""
_FIRSTS = f"""{_WALK}
SELECT lines.priority, extract(epoch FROM greatest(job.queued_at, job.not_before))::float8
FROM lines CROSS JOIN LATERAL (
    SELECT job_id FROM filaviva.turns AS turns WHERE turns.queue = lines.queue
        AND turns.tenant = lines.tenant AND turns.priority = lines.priority
    ORDER BY job_id LIMIT 1) AS first
JOIN filaviva.jobs AS job ON job.id = first.job_id
LIMIT $4
"""

# By ctid: no statistics can lead the planner astray, and a row that moved meanwhile is taken in the
# next round. The jobs are only looked at: a wake-up that comes too late for its job is stale. For
# the broker it has no priority, which would put it before others whose turn it is. LATERAL
# with LIMIT is one look-up by key for each, and a full join is never a nested loop.
_TAKE = f"""
WITH lines AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::smallint[], $4::float8[], $5::float8[])
    AS x(tenant, priority, start, stride)),
offered AS MATERIALIZED (
    SELECT lines.tenant, lines.priority, offer.place, lines.start
        + lines.stride * row_number() OVER (PARTITION BY lines.tenant, lines.priority
                                            ORDER BY offer.job_id) AS pass
    FROM lines CROSS JOIN LATERAL (
        SELECT turns.ctid AS place, job_id FROM filaviva.turns AS turns
        WHERE queue = $1 AND turns.tenant = lines.tenant AND turns.priority = lines.priority
        ORDER BY job_id LIMIT $6) AS offer),
chosen AS MATERIALIZED (
    SELECT * FROM offered ORDER BY pass, tenant, priority LIMIT $7),
gone AS (
    DELETE FROM filaviva.turns WHERE ctid = ANY(ARRAY(SELECT place FROM chosen))
    RETURNING job_id, epoch, tenant, priority),
due AS MATERIALIZED (
    SELECT looked.* FROM gone CROSS JOIN LATERAL (
        SELECT id, jobs.epoch, issue, type, version, jobs.queue, correlation_id, traceparent,
            not_before
        FROM filaviva.jobs AS jobs
        WHERE jobs.id = gone.job_id AND jobs.epoch = gone.epoch AND state = 'queued'
            AND parked_reason IS NULL LIMIT 1) AS looked),
issued AS (
    INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, job_id, epoch,
        correlation_id, traceparent, not_before)
    SELECT $8::text, queue, id || ':' || epoch || ':' || issue, $9::text,
        jsonb_build_object('jobId', id, 'epoch', epoch, 'type', type, 'version', version,
            'queue', queue),
        id, epoch, correlation_id, traceparent, not_before
    FROM due
    RETURNING {outbox.RETURNING})
SELECT gone.tenant, gone.priority, gone.job_id, issued.*
FROM gone FULL JOIN issued ON issued.job_id = gone.job_id
"""


# In the order in which they came due; who is no longer wanted is dropped here.
_COME_DUE = """
WITH due AS MATERIALIZED (
    SELECT ctid AS place FROM filaviva.upcoming WHERE due_at <= now()
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED),
gone AS MATERIALIZED (
    DELETE FROM filaviva.upcoming WHERE ctid = ANY(ARRAY(SELECT place FROM due))
    RETURNING job_id, epoch),
in_line AS (
    INSERT INTO filaviva.turns (queue, tenant, priority, job_id, epoch)
    SELECT looked.* FROM gone CROSS JOIN LATERAL (
        SELECT queue, tenant, priority, id, jobs.epoch FROM filaviva.jobs AS jobs
        WHERE jobs.id = gone.job_id AND jobs.epoch = gone.epoch AND state = 'queued'
            AND parked_reason IS NULL LIMIT 1) AS looked
    ORDER BY id
    ON CONFLICT (queue, tenant, priority, job_id) DO UPDATE SET epoch = excluded.epoch)
SELECT count(*), (
    SELECT extract(epoch FROM due_at - clock_timestamp())::float8 FROM filaviva.upcoming
    WHERE due_at > now() ORDER BY due_at LIMIT 1)
FROM gone
"""


@dataclass(frozen=True, slots=True)
class Due:
    """How many have come due, and in how many seconds the next ones do."""

    count: int
    next_in: float | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A line, and whether its tenant's own limit keeps jobs back already."""

    queue: str
    tenant: str
    priority: int
    held_back: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """The lines of the rows that are gone, one entry a row, and the wake-ups that were issued."""

    lines: Sequence[tuple[str, int]]
    rows: Sequence[OutboxRow]


async def lines(
    connection: AsyncConnection, *, after: Place, limit: int, limits: bool
) -> list[Waiting]:
    """Give the lines after this place in their order; `limits`: some tenants have them."""
    return [Waiting(*row) for row in await fetch(connection, _LINES, (*after, limit, limits))]


async def firsts(
    connection: AsyncConnection, *, after: Place, limit: int
) -> list[tuple[int, float]]:
    """Give the priority of each line, and the moment since when its first job is due."""
    found = await fetch(connection, _FIRSTS, (*after, limit))
    return [(row[0], row[1]) for row in found]


async def come_due(connection: AsyncConnection, *, most: int) -> Due:
    """Have jobs whose time has come wait for their turn."""
    ((count, next_in),) = await fetch(connection, _COME_DUE, (most,))
    return Due(count, next_in)


async def take(
    connection: AsyncConnection, queue: str, offers: Sequence[Offer], *, most: int
) -> Taken:
    """Take the next of these lines, at most so many, each line as its offer says."""
    each = max(2, min(most, 4 * most // len(offers)))
    columns = (
        [offer.tenant for offer in offers],
        [offer.priority for offer in offers],
        [offer.start for offer in offers],
        [offer.stride for offer in offers],
    )
    arguments = (queue, *columns, each, most, Topology().jobs, wakeups.TYPE)
    found = await fetch(connection, _TAKE, arguments)
    passes = _passes(offers, found)
    issued = [OutboxRow(*record[3:]) for record in found if record[3] is not None]
    ordered = sorted(issued, key=lambda row: passes[row.job_id])
    return Taken([(record[0], record[1]) for record in found], ordered)


def _passes(offers: Sequence[Offer], taken: Sequence[Any]) -> dict[UUID | None, float]:
    """At which pass each job was taken: that is the order in which they leave."""
    lines = {(offer.tenant, offer.priority): offer for offer in offers}
    counts: Counter[tuple[str, int]] = Counter()
    passes: dict[UUID | None, float] = {}
    for tenant, priority, job_id, *_ in sorted(taken, key=_by_job):
        counts[tenant, priority] += 1
        line = lines[tenant, priority]
        passes[job_id] = line.start + line.stride * counts[tenant, priority]
    return passes


def _by_job(record: Any) -> UUID:
    job_id: UUID = record[2]
    return job_id


async def unconfirmed(connection: AsyncConnection, ids: Sequence[int]) -> frozenset[int]:
    """Tell which of these outbox rows the broker has not confirmed yet."""
    if not ids:
        return frozenset()
    statement = "SELECT id FROM filaviva.outbox WHERE id = ANY($1::bigint[])"
    return frozenset(row[0] for row in await fetch(connection, statement, (list(ids),)))


_KEEP = """
INSERT INTO filaviva.turn_keeper AS keeper (id, until)
VALUES ($1, clock_timestamp() + make_interval(secs => $2))
ON CONFLICT (one) DO UPDATE SET id = excluded.id, until = excluded.until
WHERE keeper.id = excluded.id OR keeper.until < clock_timestamp()
RETURNING id
"""
_LEAVE = "UPDATE filaviva.turn_keeper SET until = clock_timestamp() WHERE id = $1"


async def keep(connection: AsyncConnection, keeper: str, seconds: float) -> bool:
    """Be the one who gives the turns for so long; False while somebody else is."""
    return bool(await fetch(connection, _KEEP, (keeper, seconds)))


async def leave(connection: AsyncConnection, keeper: str) -> None:
    """Let somebody else give the turns from now on."""
    await fetch(connection, _LEAVE, (keeper,))
