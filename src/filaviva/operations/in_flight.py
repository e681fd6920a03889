"""Which versions of contracts are still on their way, and who would read them: a deploy gate.

Before: jobs wait, run, pause or are parked; letters may be sent back; schedules will submit.
After: each version with where it is, how many, and whether the app (or whoever runs now) reads it.
May happen twice: it only reads.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.app import App
from filaviva.operations.readers import READERS
from filaviva_contracts.names import event_of

Readable: TypeAlias = Literal["yes", "upcast", "no", "other app", "unknown"]

# The apps of a version are those who read it or a handler of it; where none does any more, all who
# have published the type. A batch is read by nobody: its items are. A letter of a job that waits
# again (parked, or sent back) is counted as that job.
_FOUND: Final = """
WITH waiting AS (
    SELECT type, version, queue, created_at AS since, CASE
        WHEN state <> 'queued' THEN 'running'
        WHEN parked_reason IS NOT NULL THEN 'parked'
        WHEN not_before > clock_timestamp() THEN 'pause'
        ELSE 'queue' END AS place
    FROM filaviva.jobs AS jobs
    WHERE state IN ('queued', 'running', 'cancel_requested')
        AND NOT EXISTS (SELECT FROM filaviva.batches AS b WHERE b.job_id = jobs.id)
    UNION ALL
    SELECT letter.type, letter.version, job.queue, letter.created_at, 'dead letter'
    FROM filaviva.dead_letters AS letter LEFT JOIN filaviva.jobs AS job ON job.id = letter.job_id
    WHERE letter.status IN ('open', 'replaying') AND letter.type IS NOT NULL
        AND letter.version IS NOT NULL AND (letter.job_id IS NULL OR job.state = 'failed')
    UNION ALL
    SELECT type, version, NULL, created_at, 'schedule' FROM filaviva.schedules WHERE enabled),
counted AS MATERIALIZED (
    SELECT type, version, place, queue, count(*)::bigint AS messages, min(since) AS oldest
    FROM waiting WHERE type NOT LIKE 'filaviva.%' GROUP BY type, version, place, queue)
SELECT counted.*, coalesce(known.readers, known.apps, '{}') AS apps,
    known.readers IS NOT NULL AS live
FROM counted CROSS JOIN LATERAL (
    SELECT array_agg(DISTINCT app ORDER BY app) AS apps, array_agg(DISTINCT app ORDER BY app)
        FILTER (WHERE version = counted.version AND deprecated_at IS NULL) AS readers
    FROM filaviva.contracts WHERE counted.type IN (type, event)) AS known
ORDER BY type, version, place, queue
"""


@dataclass(frozen=True, slots=True)
class Owners:
    """Who has published a version, or its type; `live`: they read it now."""

    apps: Sequence[str]
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """So many messages of one version in one place; in the broker so many at most."""

    type: str
    version: int
    place: str
    queue: str | None
    messages: int
    oldest: datetime | None
    apps: Sequence[str]
    readable: Readable


Reader: TypeAlias = Callable[[str, int, Owners], Readable]
"""Tell whether a version of a type, which is theirs, can be read."""


async def in_flight(connection: AsyncConnection, app: App | None = None) -> list[InFlight]:
    """Find what is on its way; without an app, whether the workers that run now read it."""
    read = await reader(connection, app)
    found = await connection.exec_driver_sql(_FOUND)
    return [
        InFlight(
            type=row.type,
            version=row.version,
            place=row.place,
            queue=row.queue,
            messages=row.messages,
            oldest=row.oldest,
            apps=row.apps,
            readable=read(row.type, row.version, Owners(row.apps, row.live)),
        )
        for row in found
    ]


def unreadable(found: Iterable[InFlight]) -> list[InFlight]:
    """Give what would be stranded."""
    return [one for one in found if one.readable == "no"]


async def reader(connection: AsyncConnection, app: App | None) -> Reader:
    """Give whom to ask: this app, or the workers that run."""
    return await _workers(connection) if app is None else reader_of(app)


def reader_of(app: App) -> Reader:
    """Ask an app: what only others have published is not its business."""

    def readable(kind: str, version: int, owners: Owners) -> Readable:
        # A letter may hold the event itself, which each of its handlers would have to read.
        kinds = [kind] if kind in app.handlers else _handlers_of(app, kind)
        handlers = [app.find(each, version) for each in kinds]
        if not handlers or None in handlers:
            mine = app.name in owners.apps or (kinds and not owners.live)
            return "no" if mine else "other app" if owners.apps else "unknown"
        return "upcast" if any(each and each.upcasters for each in handlers) else "yes"

    return readable


def _handlers_of(app: App, event: str) -> list[str]:
    return [kind for kind in app.handlers if event_of(kind) == event]


async def _workers(connection: AsyncConnection) -> Reader:
    rows: Sequence[tuple[str, int, int]] = [
        (row.type, row.min, row.max) for row in await connection.exec_driver_sql(READERS)
    ]

    def readable(kind: str, version: int, owners: Owners) -> Readable:
        kinds = {known for known, _, _ in rows if kind in (known, event_of(known))}
        if not kinds and not owners.apps:
            return "unknown"
        read = {known for known, low, high in rows if low <= version <= high and known in kinds}
        return "yes" if kinds and read == kinds else "no"

    return readable
