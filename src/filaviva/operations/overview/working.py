"""Jobs at work, and who works: from the index of leases and the workers' heartbeats.

Before: nothing. After: what runs by queue, the longest with their steps, and the workers that are
heard of. May happen twice: it only reads.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import simplejson
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.operations.overview.figures import NONE, Chosen, Count, Running, Worker

MOST: Final = 5_000
_SHOWN: Final = 100
_STEPS: Final = 2_000
_WORKERS_SHOWN: Final = 500

# A batch runs without a lease: its items have theirs.
_LEASED: Final = """
FROM (SELECT id, queue, type, revision, attempt, fence, lease_owner, lease_expires_at,
        cancel_requested_at, state
    FROM filaviva.jobs
    WHERE state IN ('running', 'cancel_requested') AND lease_expires_at IS NOT NULL
    ORDER BY lease_expires_at LIMIT $1) AS job
"""
_COUNTS: Final = f"""
SELECT queue, type, count(*),
    count(*) FILTER (WHERE lease_expires_at < now() - interval '30 seconds') {_LEASED} GROUP BY 1, 2
"""
# A fence is a time of the clock at which its claim was made: the smallest runs longest.
_LONGEST: Final = f"""
WITH longest AS MATERIALIZED (
    SELECT * {_LEASED} WHERE ($2::text[] = '{{}}' OR queue = ANY($2::text[]))
        AND ($3::text[] = '{{}}' OR type = ANY($3::text[]))
    ORDER BY fence LIMIT $4)
SELECT id, queue, type, attempt, coalesce(tried.worker, lease_owner, ''),
    extract(epoch FROM now() - tried.started_at)::float8, step.name,
    extract(epoch FROM now() - step.started_at)::float8,
    CASE state WHEN 'cancel_requested'
        THEN extract(epoch FROM now() - cancel_requested_at)::float8 END,
    nullif(greatest(extract(epoch FROM now() - lease_expires_at)::float8, 0), 0)
FROM longest
CROSS JOIN LATERAL (
    SELECT worker, started_at FROM filaviva.attempts AS attempts
    WHERE attempts.job_id = longest.id AND number = longest.attempt LIMIT 1) AS tried
LEFT JOIN LATERAL (
    SELECT name, started_at FROM (
        SELECT name, started_at, state FROM filaviva.steps AS steps
        WHERE steps.job_id = longest.id AND steps.revision = longest.revision LIMIT $5) AS taken
    WHERE taken.state = 'running' ORDER BY started_at DESC LIMIT 1) AS step ON true
"""
_WORKERS: Final = """
SELECT id, app, queues, slots, busy, release, reads::text,
    extract(epoch FROM now() - started_at)::float8,
    extract(epoch FROM now() - last_seen_at)::float8,
    extract(epoch FROM now() - draining_at)::float8, lately::text
FROM filaviva.workers
WHERE service = 'worker' AND stopped_at IS NULL AND last_seen_at > now() - interval '1 hour'
ORDER BY last_seen_at DESC LIMIT $1
"""
# What is recorded of a handler's limit where the job was submitted may be older than this.
_CONTRACTS: Final = """
SELECT type, queue, (policy->>'timeout')::float8 FROM filaviva.contracts
WHERE queue IS NOT NULL ORDER BY deprecated_at IS NULL, version
"""


class Contracts(NamedTuple):
    """What is known of each type: its queue, and how long its handler may take."""

    queues: Mapping[str, str]
    limits: Mapping[str, float | None]


class Working(NamedTuple):
    """What runs: by queue, how many leases nobody frees, and the longest."""

    counts: Mapping[str, Count]
    expired: int
    longest: Sequence[Running]


async def contracts(connection: AsyncConnection) -> Contracts:
    """Read the contracts; of several versions the newest counts."""
    rows = await fetch(connection, _CONTRACTS)
    return Contracts({row[0]: row[1] for row in rows}, {row[0]: row[2] for row in rows})


async def look(
    connection: AsyncConnection, chosen: Chosen, limits: Mapping[str, float | None]
) -> Working:
    """Look at what runs."""
    rows = await fetch(connection, _COUNTS, (MOST,))
    more = sum(row[2] for row in rows) >= MOST
    counts: dict[str, Count] = {}
    for queue, kind, jobs, _ in rows:
        if chosen.type(kind):
            counts[queue] = counts.get(queue, NONE) + Count(jobs, more)
    wanted = (MOST, list(chosen.queues), list(chosen.types), _SHOWN, _STEPS)
    longest = [
        Running(*(*row, limits.get(row[2]))) for row in await fetch(connection, _LONGEST, wanted)
    ]
    longest.sort(key=lambda each: -each.seconds)
    return Working(counts, sum(row[3] for row in rows), longest)


async def workers(connection: AsyncConnection) -> Sequence[Worker]:
    """Read what the workers tell of themselves."""
    rows = await fetch(connection, _WORKERS, (_WORKERS_SHOWN,))
    return [_worker(*row) for row in rows]


def _worker(*row: Any) -> Worker:
    *told, lately = row
    told[6] = simplejson.loads(told[6])
    return Worker(*(*told, simplejson.loads(lately)))
