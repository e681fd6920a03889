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

# The app of a type is who published it last. A batch is read by nobody: its items are. A letter of
# a job that waits again (parked, or sent back) is counted as that job.
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
    SELECT type, version, NULL, created_at, 'schedule' FROM filaviva.schedules WHERE enabled)
SELECT waiting.type, waiting.version, waiting.place, waiting.queue, count(*)::bigint AS messages,
    min(waiting.since) AS oldest, owner.app
FROM waiting LEFT JOIN LATERAL (
    SELECT app FROM filaviva.contracts AS known WHERE known.type = waiting.type
    ORDER BY (known.version = waiting.version) DESC, known.updated_at DESC LIMIT 1) AS owner ON true
WHERE waiting.type NOT LIKE 'filaviva.%'
GROUP BY waiting.type, waiting.version, waiting.place, waiting.queue, owner.app
ORDER BY waiting.type, waiting.version, waiting.place, waiting.queue
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """So many messages of one version in one place; in the broker so many at most."""

    type: str
    version: int
    place: str
    queue: str | None
    messages: int
    oldest: datetime | None
    app: str | None
    readable: Readable


Reader: TypeAlias = Callable[[str, int, str | None], Readable]
"""Tell whether a version of a type, which that app has published, can be read."""


async def in_flight(connection: AsyncConnection, app: App | None = None) -> list[InFlight]:
    """Find what is on its way; without an app, whether the workers that run now read it."""
    read = await reader(connection, app)
    found = await connection.exec_driver_sql(_FOUND)
    return [
        InFlight(**row, readable=read(row["type"], row["version"], row["app"]))
        for row in found.mappings()
    ]


def unreadable(found: Iterable[InFlight]) -> list[InFlight]:
    """Give what would be stranded."""
    return [one for one in found if one.readable == "no"]


async def reader(connection: AsyncConnection, app: App | None) -> Reader:
    """Give whom to ask: this app, or the workers that run."""
    return await _workers(connection) if app is None else reader_of(app)


def reader_of(app: App) -> Reader:
    """Ask an app: what another one has published is not its business."""
    events = {event_of(kind) for kind in app.handlers}

    def readable(kind: str, version: int, owner: str | None) -> Readable:
        # A letter may hold the event itself, which each of its handlers would have to read.
        kinds = [kind] if kind in app.handlers else _handlers_of(app, kind)
        if not kinds and kind not in events and owner != app.name:
            return "unknown" if owner is None else "other app"
        handlers = [app.find(each, version) for each in kinds]
        if not handlers or None in handlers:
            return "no"
        return "upcast" if any(each and each.upcasters for each in handlers) else "yes"

    return readable


def _handlers_of(app: App, event: str) -> list[str]:
    return [kind for kind in app.handlers if event_of(kind) == event]


async def _workers(connection: AsyncConnection) -> Reader:
    rows: Sequence[tuple[str, int, int]] = [
        (row.type, row.min, row.max) for row in await connection.exec_driver_sql(READERS)
    ]

    def readable(kind: str, version: int, owner: str | None) -> Readable:
        kinds = {known for known, _, _ in rows if kind in (known, event_of(known))}
        if not kinds and owner is None:
            return "unknown"
        read = {known for known, low, high in rows if low <= version <= high and known in kinds}
        return "yes" if kinds and read == kinds else "no"

    return readable
