"""Say that this process is there, how it is set and what it measures: for who looks at all of them.

Before: a process that runs. After: its row in `filaviva.processes` is of now, until it has stopped.
May happen twice: the row is the same. It holds no secret and no address: numbers, names of users,
and whether something is set.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Mapping
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.broker.connection import user_of
from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.service import Loop, LoopLag, process_id, wait
from filaviva.settings import RetentionGroup, Settings
from filaviva.telemetry.endpoint import Endpoint, Problems
from filaviva.telemetry.metrics import Metrics
from filaviva.worst import Worst

log = structlog.get_logger("filaviva")

EVERY_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 2.0

_CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
# What the server says of this session is what the others of this process are like.
_SEEN: Final = """
INSERT INTO filaviva.processes AS known
    (id, service, host, pid, release, settings, measured, scraped_at, scraped_by)
SELECT $1, $2, $3, $4, $5, $6::jsonb, $7::jsonb || jsonb_build_object(
        'databaseUser', current_user,
        'superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
        'databaseTls', (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())),
    clock_timestamp() - make_interval(secs => $8), $9
ON CONFLICT (id) DO UPDATE SET measured = excluded.measured, scraped_at = excluded.scraped_at,
    scraped_by = excluded.scraped_by, last_seen_at = clock_timestamp()
"""
_GONE: Final = "UPDATE filaviva.processes SET stopped_at = clock_timestamp() WHERE id = $1"


class Attendance:
    """Keep the row of this process."""

    def __init__(  # noqa: PLR0913 - what there is to say
        self,
        engine: AsyncEngine,
        service: str,
        settings: Settings,
        *,
        endpoint: Endpoint,
        lag: LoopLag,
        renewals: Worst | None = None,
    ) -> None:
        self.id = process_id()
        self._engine = engine
        self._service = service
        self._settings = json.dumps(declared(settings))
        self._endpoint = endpoint
        self._lag = lag
        self._renewals = renewals

    async def run(self, stop: asyncio.Event) -> None:
        """Be seen until stopped."""
        while not stop.is_set():
            await self._try(self.step())
            await wait(stop, EVERY_SECONDS)
        await self._try(transact(self._engine, self._leave))

    async def step(self) -> int:
        """Be seen once."""
        await transact(self._engine, self._be_seen)
        return 1

    async def _try(self, work: Awaitable[object]) -> None:
        # A server that is frozen must not keep the process from ending.
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await work
        except DATABASE_ERRORS as away:
            log.debug("not seen", why=said(away))

    async def _be_seen(self, connection: AsyncConnection) -> None:
        measured = {**await _clock(connection), "loopLag": self._lag.worst.value}
        if self._renewals is not None:
            measured["renewalGap"] = self._renewals.value
        scraped = self._endpoint.scraped
        await connection.exec_driver_sql(
            _SEEN,
            (
                self.id,
                self._service,
                socket.gethostname(),
                os.getpid(),
                version("filaviva"),
                self._settings,
                json.dumps(measured),
                None if scraped is None else scraped.seconds_ago,
                None if scraped is None else scraped.by,
            ),
        )

    async def _leave(self, connection: AsyncConnection) -> None:
        await connection.exec_driver_sql(_GONE, (self.id,))


def beside(  # noqa: PLR0913 - what there is to say
    engine: AsyncEngine,
    service: str,
    settings: Settings,
    metrics: Metrics,
    problems: Problems,
    *,
    port: int,
    renewals: Worst | None = None,
) -> tuple[Loop, ...]:
    """Make what turns beside the work of every process: its metrics' port, its lag, its row."""
    host, port = settings.metrics.host, settings.metrics.port or port
    endpoint, lag = Endpoint(metrics.registry, problems, host=host, port=port), LoopLag(metrics)
    attendance = Attendance(
        engine, service, settings, endpoint=endpoint, lag=lag, renewals=renewals
    )
    return endpoint, lag, attendance


async def _clock(connection: AsyncConnection) -> Mapping[str, float]:
    """How far this process's clock is ahead of the database's, and how sure that is."""
    before = time.time()
    (row,) = await fetch(connection, _CLOCK)
    after = time.time()
    return {"clockAhead": (before + after) / 2 - row[0], "clockDoubt": (after - before) / 2}


def declared(settings: Settings) -> Mapping[str, Any]:
    """Give what others may know of a process's settings."""
    broker = settings.broker.url.get_secret_value()
    worker, callbacks = settings.worker, settings.callbacks
    return {
        "environment": settings.environment,
        "leaseSeconds": worker.lease_seconds,
        "graceSeconds": worker.grace_seconds,
        "detachAfterSeconds": worker.detach_after_seconds,
        "concurrency": worker.concurrency,
        "poolSize": settings.postgres.pool_size,
        "brokerUser": user_of(broker),
        "brokerTls": urlsplit(broker).scheme == "amqps",
        "slack": settings.slack.webhook_url is not None,
        "callbacks": callbacks.secret is not None,
        "callbacksAnywhere": callbacks.allow_http or callbacks.allow_private,
        "links": settings.links.secret is not None,
        "retention": settings.retention != RetentionGroup(),
    }
