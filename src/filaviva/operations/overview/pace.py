"""How much happens: what the workers counted themselves, and what was submitted and died lately.

Before: nothing. After: rates by queue and type. May happen twice: it only reads. Ids of jobs and
letters are in the order of time, so the newest are the end of an index.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.operations.overview.figures import Chosen, Rate, Worker

MOST: Final = 3_000
_WINDOW: Final = 60.0
# Ids have the time of who made them: so far a clock may be behind the database's.
_SLACK: Final = 240.0

_SUBMITTED: Final = """
SELECT queue, type, count(*), extract(epoch FROM now() - min(created_at))::float8
FROM (SELECT queue, type, created_at FROM filaviva.jobs WHERE id > $1::uuid
      ORDER BY id DESC LIMIT $2) AS newest
WHERE created_at > now() - make_interval(secs => $3) GROUP BY 1, 2
"""
_DIED: Final = """
SELECT type, count(*), extract(epoch FROM now() - min(created_at))::float8
FROM (SELECT type, created_at FROM filaviva.dead_letters WHERE id > $1::uuid
      ORDER BY id DESC LIMIT $2) AS newest
WHERE created_at > now() - make_interval(secs => $3) GROUP BY 1
"""
# The words of a worker, and ours.
_COUNTED: Final = {
    "started": "started",
    "succeeded": "succeeded",
    "retry": "retried",
    "failed": "failed",
    "canceled": "canceled",
}

Rates = dict[tuple[str, str], dict[str, float]]


async def look(
    connection: AsyncConnection,
    at: float,
    workers: Sequence[Worker],
    queues: Mapping[str, str],
    chosen: Chosen,
) -> Sequence[Rate]:
    """Add up what happened within the last minute, as rates."""
    rates: Rates = defaultdict(lambda: defaultdict(float))
    for worker in workers:
        _add(rates, worker.lately)
    since = (since_id(at - _WINDOW - _SLACK), MOST, _WINDOW)
    submitted = await fetch(connection, _SUBMITTED, since)
    seconds = _seen((row[2], row[3]) for row in submitted)
    for queue, kind, jobs, _ in submitted:
        rates[queue, kind]["submitted"] += jobs / seconds
    died = await fetch(connection, _DIED, since)
    seconds = _seen((row[1], row[2]) for row in died)
    for kind, letters, _ in died:
        rates[queues.get(kind, ""), kind or ""]["died"] += letters / seconds
    return [
        Rate(queue, kind, **found)
        for (queue, kind), found in sorted(rates.items())
        if chosen.type(kind) and (chosen.queue(queue) or not queue)
    ]


def since_id(at: float) -> UUID:
    """Give the smallest id that is made at this time."""
    return UUID(int=int(at * 1000) << 80)


def _add(rates: Rates, lately: Mapping[str, Any]) -> None:
    seconds = float(lately.get("seconds") or 0.0)
    for work in lately.get("work", ()) if seconds else ():
        found = rates[work["queue"], work["type"]]
        for theirs, ours in _COUNTED.items():
            found[ours] += work.get(theirs, 0.0) / seconds
        found["usd_per_minute"] += work.get("costUsd", 0.0) / seconds * 60


def _seen(counted: Iterable[tuple[int, float]]) -> float:
    """Tell how many seconds were looked at: fewer than a minute where so much happened."""
    rows = list(counted)
    full = sum(count for count, _ in rows) >= MOST
    return max(1.0, *(age for _, age in rows)) if full else _WINDOW
