"""The rows behind alerts: what waits to be told, the pace of the channel, what to tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import as_dict
from filaviva_dlq_handler.alert import Failure, Sample

# More new groups than this are one message: a person reads none of thirty.
STORM = 20
MOST = 500
# Longer than a request may take: whoever crashed while sending is repeated after it.
LEASE_SECONDS = 30.0

_CHANNEL = """
INSERT INTO filaviva.notification_channels (name) VALUES ($1) ON CONFLICT (name) DO NOTHING
"""

# One process at a time sends to a channel, and not before its time.
_OPEN = """
SELECT failures FROM filaviva.notification_channels
WHERE name = $1 AND open_at <= clock_timestamp() FOR NO KEY UPDATE SKIP LOCKED
"""
_HOLD = """
UPDATE filaviva.notification_channels
SET open_at = clock_timestamp() + make_interval(secs => $2), failures = $3, error = $4
WHERE name = $1
"""
_WAITING = """
SELECT waiting.id, waiting.group_id, waiting.episode, waiting.error,
    CASE waiting.kind WHEN 'test' THEN coalesce(waiting.text, '') END AS tester
FROM filaviva.notifications AS waiting
WHERE waiting.state = 'waiting' AND waiting.channel = $1
    AND waiting.next_try_at <= clock_timestamp()
ORDER BY waiting.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
"""
_SILENT = """
UPDATE filaviva.notifications AS waiting SET state = 'dropped', error = 'the group was snoozed'
FROM filaviva.failure_groups AS g
WHERE waiting.state = 'waiting' AND waiting.channel = $1 AND g.id = waiting.group_id
    AND g.state = 'snoozed' AND g.snoozed_until > clock_timestamp()
"""
_TAKE = """
UPDATE filaviva.notifications
SET tries = tries + 1, next_try_at = clock_timestamp() + make_interval(secs => $2)
WHERE id = ANY($1::bigint[])
"""
_SENT = """
UPDATE filaviva.notifications SET state = 'sent', sent_at = clock_timestamp(), text = $2,
    error = NULL WHERE id = ANY($1::bigint[])
"""
_DROPPED = """
UPDATE filaviva.notifications SET state = 'dropped', text = $2, error = $3
WHERE id = ANY($1::bigint[])
"""
_AGAIN = """
UPDATE filaviva.notifications SET next_try_at = clock_timestamp(), error = $2
WHERE id = ANY($1::bigint[])
"""

_FAILURES = """
SELECT g.id AS group_id, g.fingerprint, g.type, g.reason, g.error_class, g.error_code, g.message,
    g.frames, x.episode, g.state, g.count, g.cost_usd, g.first_seen_at, g.last_seen_at
FROM unnest($1::uuid[], $2::int[]) AS x(id, episode)
JOIN filaviva.failure_groups AS g ON g.id = x.id ORDER BY x.id
"""
_SAMPLES = """
SELECT letter.id AS letter_id, letter.job_id, letter.tenant, letter.version, letter.attempts,
    last.worker, job.correlation_id
FROM filaviva.dead_letters AS letter
LEFT JOIN filaviva.jobs AS job ON job.id = letter.job_id
LEFT JOIN filaviva.attempts AS last ON last.job_id = job.id AND last.number = job.attempt
WHERE letter.group_id = $1 ORDER BY letter.id DESC LIMIT 3
"""
_SECONDS = """
SELECT coalesce(sum(extract(epoch FROM finished_at - started_at)), 0)::float8
FROM filaviva.attempts WHERE job_id = ANY($1::uuid[])
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """Notifications that this process sends now, as one message."""

    ids: Sequence[int]
    failures: Sequence[Failure]
    error: str | None  # why it was not taken the last time
    in_a_row: int  # how often the channel has failed since it last worked
    tester: str | None = None  # who wants to see whether alerts arrive; None: it tells of failures

    @property
    def storm(self) -> bool:
        """There are too many for one message each."""
        return len(self.ids) > 1


async def ensure_channel(connection: AsyncConnection, channel: str) -> None:
    """Make sure that the channel has a pace."""
    await connection.exec_driver_sql(_CHANNEL, (channel,))


async def take(connection: AsyncConnection, channel: str) -> Taken | None:
    """Take the next message to send, if the channel is open: the oldest, or all of a storm."""
    open_now = (await connection.exec_driver_sql(_OPEN, (channel,))).first()
    if open_now is None:
        return None
    await connection.exec_driver_sql(_SILENT, (channel,))
    waiting = (await connection.exec_driver_sql(_WAITING, (channel, MOST))).all()
    if not waiting:
        return None
    chosen = _together(waiting)
    ids = [row.id for row in chosen]
    await connection.exec_driver_sql(_TAKE, (ids, LEASE_SECONDS))
    await hold(connection, channel, LEASE_SECONDS, open_now.failures)
    failures = await _failures(connection, [(row.group_id, row.episode) for row in chosen])
    return Taken(ids, failures, chosen[0].error, open_now.failures, chosen[0].tester)


def _together(waiting: Sequence[Any]) -> Sequence[Any]:
    """Choose what is one message: the oldest, or all failures of a storm; a test goes alone."""
    if waiting[0].tester is not None:
        return waiting[:1]
    failures = [row for row in waiting if row.tester is None]
    return failures if len(failures) > STORM else failures[:1]


async def hold(
    connection: AsyncConnection,
    channel: str,
    seconds: float,
    failures: int,
    error: str | None = None,
) -> None:
    """Keep the channel closed for so long."""
    await connection.exec_driver_sql(_HOLD, (channel, seconds, failures, error))


async def sent(connection: AsyncConnection, ids: Sequence[int], text: str) -> None:
    """Write down that these were told."""
    await connection.exec_driver_sql(_SENT, (list(ids), text))


async def dropped(connection: AsyncConnection, ids: Sequence[int], text: str, why: str) -> None:
    """Write down that these will not be told, and why; the text stays readable here."""
    await connection.exec_driver_sql(_DROPPED, (list(ids), text, why))


async def again(connection: AsyncConnection, ids: Sequence[int], why: str) -> None:
    """Leave these to the next turn of the channel."""
    await connection.exec_driver_sql(_AGAIN, (list(ids), why))


async def _failures(
    connection: AsyncConnection, groups: Sequence[tuple[UUID, int]]
) -> list[Failure]:
    arguments = ([group for group, _ in groups], [episode for _, episode in groups])
    rows = [as_dict(row) for row in await connection.exec_driver_sql(_FAILURES, arguments)]
    if len(rows) > 1:  # a digest needs no samples
        return [_failure(row, (), 0.0) for row in rows]
    return [await _detailed(connection, row) for row in rows]


async def _detailed(connection: AsyncConnection, row: dict[str, Any]) -> Failure:
    found = await connection.exec_driver_sql(_SAMPLES, (row["group_id"],))
    letters = [as_dict(letter) for letter in found]
    jobs = [letter["job_id"] for letter in letters if letter["job_id"] is not None]
    seconds = (await connection.exec_driver_sql(_SECONDS, (jobs,))).scalar_one()
    return _failure(row, tuple(_sample(letter) for letter in letters), seconds)


def _failure(row: dict[str, Any], samples: tuple[Sample, ...], seconds: float) -> Failure:
    changed = {"group_id": str(row["group_id"]), "frames": tuple(row["frames"] or ())}
    return Failure(**{**row, **changed}, samples=samples, seconds=seconds)


def _sample(letter: dict[str, Any]) -> Sample:
    job = letter["job_id"]
    changed = {"letter_id": str(letter["letter_id"]), "job_id": None if job is None else str(job)}
    return Sample(**{**letter, **changed})
