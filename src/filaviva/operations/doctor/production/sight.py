"""What the checks of the production list look at."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.attendance import EVERY_SECONDS
from filaviva.errors import Unreachable
from filaviva.operations.doctor.broker import Addresses

# An answer takes a moment in production, where tables are large; what takes longer is told so.
_PATIENCE: Final = "SET statement_timeout = '5s'"
SEEN_SECONDS: Final = 30
EVERY: Final = EVERY_SECONDS

_PROCESSES: Final = """
SELECT id, service, host, release, settings, measured, scraped_by,
    extract(epoch FROM clock_timestamp() - scraped_at)::float8 AS scraped_seconds_ago,
    extract(epoch FROM last_seen_at - started_at)::float8 AS age_seconds,
    stopped_at IS NULL AND last_seen_at > clock_timestamp() - make_interval(secs => $1) AS live
FROM filaviva.processes WHERE last_seen_at > clock_timestamp() - interval '1 day'
ORDER BY service, id
"""

SERVICES: Final = ("producer", "worker", "retry-scheduler", "dlq-handler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of ours that was seen within the last day."""

    id: str
    service: str
    host: str
    release: str
    settings: Mapping[str, Any]
    measured: Mapping[str, Any]
    scraped_by: str | None
    scraped_seconds_ago: float | None
    age_seconds: float
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What whoever runs the doctor adds to it."""

    author: str = "system"
    prometheus: str | None = None
    alerts: frozenset[str] = frozenset()  # that Prometheus should have
    project: Path | None = None
    api: str | None = None
    stop_seconds: float | None = None
    send_test_alert: bool = False
    send_job_twice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Where to look."""

    engine: AsyncEngine
    database_url: str
    addresses: Addresses
    asked: Asked
    processes: Sequence[Process] = ()
    unseen: str | None = None  # why nobody knows which processes there are
    away: str | None = None  # why the database cannot be asked

    def reachable(self) -> AsyncEngine:
        """Give the engine; Unreachable at once if nobody answered before."""
        if self.away is not None:
            raise Unreachable(self.away)
        return self.engine

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        """Open a session in which no question takes long."""
        async with self.reachable().connect() as connection:
            yield await patient(connection)

    def seen(self) -> Sequence[Process]:
        """Give every process of the last day; Unreachable if nobody knows them."""
        if self.unseen is not None:
            raise Unreachable(f"nobody knows who runs: {self.unseen}")
        return self.processes

    def live(self, *services: str) -> list[Process]:
        """Give the processes that run, of these services or of all; Unreachable likewise."""
        return [
            each for each in self.seen() if each.live and (not services or each.service in services)
        ]

    def known(self, *services: str) -> list[Process]:
        """Give those that run as far as anybody knows, for what does not hang on it."""
        return [] if self.unseen is not None else self.live(*services)


async def patient(connection: AsyncConnection) -> AsyncConnection:
    """Let no question of this session take long."""
    await connection.exec_driver_sql(_PATIENCE)
    return connection


async def processes(connection: AsyncConnection) -> list[Process]:
    """Read who was seen within the last day."""
    found = await connection.exec_driver_sql(_PROCESSES, (SEEN_SECONDS,))
    return [Process(**row) for row in found.mappings()]


# Ids of jobs grow with time (UUIDv7: 48 bits of milliseconds first): the smallest of a week ago.
LATELY: Final = (
    "(lpad(to_hex((extract(epoch FROM now() - interval '7 days') * 1000)::bigint),"
    " 12, '0') || repeat('0', 20))::uuid"
)
