"""What waits, and since when, as the database knows it.

Before: nothing. After: the figures of `telemetry.figures`, with a 0 for whatever is known and does
not wait; the counts are kept in the database too. May happen twice: the last count stays.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS, said
from filaviva.operations.overview import counted
from filaviva.telemetry.figures import Values
from filaviva.telemetry.known import REASONS, UNKNOWN
from filaviva_retry_scheduler import server, waiting
from filaviva_retry_scheduler.shares import CLASSES, class_of
from filaviva_retry_scheduler.waiting import START

log = structlog.get_logger("filaviva")

Counts: TypeAlias = dict[tuple[str, ...], float]

STATES: Final = ("queued", "paused", "parked", "running", "cancel_requested")

# Services connect without sequential scans: only the partial indexes of what has not ended are
# read, whatever the statistics say of millions of rows that have.
JOBS: Final = """
SELECT queue, type, CASE WHEN parked_reason IS NOT NULL THEN 'parked'
        WHEN not_before > now() THEN 'paused' ELSE 'queued' END AS state,
    count(*), extract(epoch FROM min(CASE WHEN not_before <= now()
        THEN greatest(queued_at, not_before) ELSE queued_at END))::float8
FROM filaviva.jobs WHERE jobs.state = 'queued' GROUP BY 1, 2, 3
UNION ALL
SELECT queue, type, state, count(*), extract(epoch FROM min(
    CASE state WHEN 'running' THEN started_at ELSE cancel_requested_at END))::float8
FROM filaviva.jobs WHERE jobs.state IN ('running', 'cancel_requested') GROUP BY 1, 2, 3
"""
# Whoever snoozes a group wants to hear nothing of it: it is counted, and has no age.
LETTERS: Final = """
SELECT type, reason, count(*), extract(epoch FROM min(created_at) FILTER (WHERE group_id NOT IN (
    SELECT id FROM filaviva.failure_groups
    WHERE state = 'snoozed' AND snoozed_until > now())))::float8
FROM filaviva.dead_letters WHERE status IN ('open', 'replaying') GROUP BY 1, 2
"""
_OUTBOX: Final = """
SELECT count(*), count(parked_at), coalesce(extract(epoch FROM
    min(created_at) FILTER (WHERE parked_at IS NULL))::float8, 0)
FROM filaviva.outbox
"""
_REPLAYS: Final = "SELECT count(*) FROM filaviva.replays WHERE state = 'running'"
# A worker that is gone for an hour will not come back under this name.
_WORKERS: Final = """
SELECT CASE WHEN last_seen_at > now() - interval '1 minute' THEN 'heard' ELSE 'silent' END,
    count(*)
FROM filaviva.workers
WHERE stopped_at IS NULL AND last_seen_at > now() - interval '1 hour' GROUP BY 1
"""
_TURNS: Final = "SELECT priority, count(*) FROM filaviva.turns GROUP BY priority"
_UPCOMING: Final = "SELECT count(*), extract(epoch FROM now())::float8 FROM filaviva.upcoming"
_MOST_LINES: Final = 10_000


async def count(connection: AsyncConnection, types: Sequence[str]) -> Mapping[str, Values]:
    """Count everything once, and keep it for whoever looks at the database."""
    found, lie = await fetch(connection, JOBS), await fetch(connection, LETTERS)
    await _keep(connection, found, lie)
    jobs = await _jobs(connection, types, found)
    letters = await _letters(connection, types, lie)
    beside = (await _messages(connection), await _turns(connection), await server.count(connection))
    return {name: each for part in (jobs, letters, *beside) for name, each in part.items()}


async def _keep(connection: AsyncConnection, jobs: Sequence[Any], letters: Sequence[Any]) -> None:
    try:
        await counted.keep(connection, (row[:4] for row in jobs), _by_type(letters))
    except DATABASE_ERRORS as refused:
        # A disk that is full takes no row: that is when the figures are looked at.
        log.warning("what was counted could not be kept", why=said(refused))


def _by_type(letters: Sequence[Any]) -> Iterable[tuple[str | None, int]]:
    counts: dict[str | None, int] = defaultdict(int)
    for kind, _, many, _ in letters:
        counts[kind] += many
    return counts.items()


async def _jobs(
    connection: AsyncConnection, types: Sequence[str], found: Sequence[Any]
) -> Mapping[str, Values]:
    counts: Counts = {(kind, state): 0.0 for kind in types for state in STATES}
    oldest = dict(counts)
    for _, kind, state, jobs, since in found:
        known = oldest.get((kind, state), 0.0)
        counts[kind, state] = counts.get((kind, state), 0.0) + jobs
        oldest[kind, state] = min(since or known, known or since or 0.0)
    workers: Counts = {("heard",): 0.0, ("silent",): 0.0}
    workers |= {(state,): many for state, many in await fetch(connection, _WORKERS)}
    return {"jobs": counts, "job_oldest_timestamp_seconds": oldest, "workers": workers}


async def _letters(
    connection: AsyncConnection, types: Sequence[str], open_letters: Sequence[Any]
) -> Mapping[str, Values]:
    known = (*types, UNKNOWN)
    counts: Counts = {(kind, reason): 0.0 for kind in known for reason in REASONS}
    oldest: Counts = {(kind,): 0.0 for kind in known}
    for found, reason, letters, since in open_letters:
        kind = found if found in types else UNKNOWN
        counts[kind, reason] = counts.get((kind, reason), 0.0) + letters
        oldest[kind,] = min(since or oldest[kind,], oldest[kind,] or since or 0.0)
    ((running,),) = await fetch(connection, _REPLAYS)
    return {
        "dead_letters_open": counts,
        "dead_letter_oldest_timestamp_seconds": oldest,
        "replays_running": {(): running},
    }


async def _messages(connection: AsyncConnection) -> Mapping[str, Values]:
    ((pending, parked, since),) = await fetch(connection, _OUTBOX)
    return {
        "outbox_pending": {(): pending},
        "outbox_parked": {(): parked},
        "outbox_oldest_timestamp_seconds": {(): since},
    }


async def _turns(connection: AsyncConnection) -> Mapping[str, Values]:
    counts: dict[str, int] = defaultdict(int)
    for priority, jobs in await fetch(connection, _TURNS):
        counts[class_of(priority)] += jobs
    oldest = dict.fromkeys(CLASSES, 0.0)
    for priority, since in await waiting.firsts(connection, after=START, limit=_MOST_LINES):
        name = class_of(priority)
        oldest[name] = min(since, oldest[name] or since)
    ((upcoming, now),) = await fetch(connection, _UPCOMING)
    return {
        "turns_waiting": {(name,): counts[name] for name in CLASSES},
        "turns_oldest_timestamp_seconds": {(name,): oldest[name] for name in CLASSES},
        "turns_upcoming": {(): upcoming},
        "figures_timestamp_seconds": {(): now},
    }
