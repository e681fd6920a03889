"""`filaviva run relay`: publish the events that a service has put into its own outbox.

Before: committed rows in `filaviva_outbox`. After: the broker has confirmed them, and they are
deleted. May happen twice: after a crash a row is published again, under the same id.
"""

import asyncio
from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import service
from filaviva.broker.publisher import Publisher
from filaviva.client import Client
from filaviva.database import connect
from filaviva.database.transaction import DATABASE_ERRORS, code, said, transact, words
from filaviva.errors import ConfigurationError
from filaviva.relay import Relay
from filaviva.relay_meter import Meter
from filaviva.service import LoopLag, serve, wait
from filaviva.service_contents import Putting
from filaviva.service_outbox import DEFINITION, NAME, OF_A_SERVICE
from filaviva.settings import Settings
from filaviva.telemetry.endpoint import Endpoint
from filaviva.telemetry.metrics import Metrics

log = structlog.get_logger("filaviva")

METRICS_PORT: Final = 9106
# Nobody tells us of a commit: this is how late an event leaves at most.
_PAUSE: Final = timedelta(seconds=0.25)
_PRESENT: Final = """
SELECT to_regclass($1) IS NOT NULL AS present, EXISTS (
    SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = 'filaviva_outbox_large')
    AS current
"""
# CREATE … IF NOT EXISTS of two at once fails for one of them.
_ALONE: Final = "SELECT pg_advisory_xact_lock(x'66696c61'::int)"
_NO_RIGHT: Final = "42501"
_COUNT: Final = f"""
SELECT count(*) FROM (SELECT FROM {NAME} LIMIT 100000) AS waiting
"""


async def relay(settings: Settings, stop: asyncio.Event) -> None:
    """Relay until stopped."""
    metrics = Metrics(revision=settings.revision)
    metrics.know("relay")
    engine = connect(settings.postgres.url.get_secret_value(), name="filaviva-relay", size=4)
    publisher = Publisher(
        settings.broker.url.get_secret_value(),
        confirm_timeout=settings.broker.confirm_timeout_seconds,
    )
    current = await make_table(engine, stop)
    relaying = Relay(
        engine, publisher, pause=_PAUSE, listener=Meter(metrics), table=OF_A_SERVICE, lanes=0
    )
    watch = Watch(engine, metrics)
    contents = settings.contents
    clients = {
        tenant: Client(contents.api, key.get_secret_value(), patience=0)
        for tenant, key in contents.keys.items()
        if contents.api
    }
    putting = [Putting(engine, clients)] if current else []

    async def problems() -> list[str]:
        return [*watch.problems, *publisher.problems()]

    port = settings.metrics.port or METRICS_PORT
    endpoint = Endpoint(metrics.registry, problems, host=settings.metrics.host, port=port)
    await serve(relaying, *putting, publisher, watch, endpoint, LoopLag(metrics), stop=stop)
    await publisher.close()
    for client in clients.values():
        await client.close()
    await engine.dispose()


async def make_table(engine: AsyncEngine, stop: asyncio.Event) -> bool:
    """Make the outbox where it is missing; wait for a database that is away.

    False: it is an earlier release's, and this user may not change it: it takes no large events.
    """
    while not stop.is_set():
        present = False
        try:
            present, current = await transact(engine, _found)
            if not current:
                await transact(engine, _make)
        except DATABASE_ERRORS as refused:
            if code(refused) != _NO_RIGHT:
                log.warning("the outbox waits for the database", why=said(refused))
                await wait(stop, 1)
                continue
            if not present:
                raise ConfigurationError(
                    f"there is no table {NAME}, and this user may not make it "
                    f"({words(refused)}): run `filaviva outbox-table | psql`"
                ) from refused
            log.warning("the outbox takes no large events", next="filaviva outbox-table | psql")
            return False
        else:
            return True
    return False


async def _found(connection: AsyncConnection) -> tuple[bool, bool]:
    found = (await connection.exec_driver_sql(_PRESENT, (NAME,))).one()
    return found.present, found.current


async def _make(connection: AsyncConnection) -> None:
    # Whoever waits for the table behind us must not wait for long: it is tried again.
    await connection.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
    await connection.exec_driver_sql(_ALONE)
    for statement in DEFINITION:
        await connection.exec_driver_sql(statement)


class Watch:
    """How much waits, looked up now and then; and whether the database answers."""

    def __init__(self, engine: AsyncEngine, metrics: Metrics, *, every_seconds: float = 2) -> None:
        self._engine = engine
        self._metrics = metrics
        self._every = every_seconds
        self.problems: list[str] = ["database: not asked yet"]

    async def run(self, stop: asyncio.Event) -> None:
        """Look until stopped."""
        while not stop.is_set():
            await self.step()
            await wait(stop, self._every)

    async def step(self) -> int:
        """Look once; return how many wait."""
        try:
            async with self._engine.connect() as connection:
                waiting = int((await connection.exec_driver_sql(_COUNT)).scalar_one())
        except DATABASE_ERRORS as away:
            self.problems = [f"database: {words(away)[:200]}"]
            return 0
        self.problems = []
        self._metrics.figures.tell({"outbox_pending": {(): waiting}})
        return waiting


def main() -> None:
    """Run the relay service."""
    service.run("relay", relay)


if __name__ == "__main__":
    main()
