"""The one-shot setup: everything an app needs before its services start.

Before: a database and a broker that answer, and users who may change them.
After:  the schema is migrated, the app's tables exist, the topology is on the broker, the
        contracts are published.
May happen twice, and at the same time: what is there stays, what is missing is added.
"""

import asyncio
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.schema import CreateSchema

from filaviva.app import App
from filaviva.broker import definitions
from filaviva.broker.apply import apply
from filaviva.broker.topology import Declarations, Topology
from filaviva.built_in import built_in
from filaviva.database import connect, migrate, newest_revision
from filaviva.errors import ConfigurationError
from filaviva.operations.routes import Routes, routes
from filaviva.operations.stranded import Stranded, stranded
from filaviva.publishing import Published, publish

# One setup at a time: CREATE … IF NOT EXISTS of two at once fails for one of them.
_ALONE: Final = "SELECT pg_advisory_xact_lock(x'66696c61'::int)"
_PATIENCE: Final = "SET LOCAL lock_timeout = '60s'"


@dataclass(frozen=True, slots=True)
class SetUp:
    """What is there now."""

    revision: str
    tables: tuple[str, ...]
    queues: tuple[str, ...]
    published: Published
    stranded: tuple[Stranded, ...] = ()


async def setup(
    *,
    database_url: str,
    broker_url: str,
    app: App | None = None,
    definitions_file: Path | None = None,
    topology: Topology | None = None,
) -> SetUp:
    """Set everything up; `definitions_file` is what a broker loads when it boots."""
    await asyncio.to_thread(migrate, database_url)
    engine = connect(database_url, name="filaviva-setup", size=2)
    try:
        tables = await _create_tables(engine, app)
        before = await _routes(engine)
        # What we do ourselves needs its queue too, whoever serves it.
        wanted = replace(before.with_app(app).with_app(built_in()), gone=frozenset())
        await apply(broker_url, wanted.declarations(topology))
        # Not before: from now on jobs are accepted, and their queues are there.
        published = await _publish(engine, app)
        after = (await _routes(engine)).after(before)
        declarations = after.declarations(topology)
        if after.gone:
            await apply(broker_url, declarations)
        if definitions_file is not None:
            _export(declarations, broker_url, definitions_file)
        astray = await _stranded(engine)
    finally:
        await engine.dispose()
    return SetUp(newest_revision(), tables, tuple(sorted(after.queues)), published, astray)


async def _create_tables(engine: AsyncEngine, app: App | None) -> tuple[str, ...]:
    tables = None if app is None else app.tables
    if app is None or tables is None:
        return ()
    schemas = sorted({table.schema for table in tables.tables.values() if table.schema})
    if "filaviva" in schemas:
        raise ConfigurationError(
            f"app {app.name!r}: found a table in the schema filaviva, expected a schema of its own"
        )
    async with engine.begin() as connection:
        await _alone(connection)
        for schema in schemas:
            await connection.execute(CreateSchema(schema, if_not_exists=True))
        await connection.run_sync(_create, tables)
    return tuple(sorted(tables.tables))


def _create(connection: object, tables: MetaData) -> None:
    tables.create_all(connection, checkfirst=True)  # type: ignore[arg-type]


async def _routes(engine: AsyncEngine) -> Routes:
    """Give the routes of every app: the exported definitions serve all of them."""
    async with engine.connect() as connection:
        return await routes(connection)


async def _stranded(engine: AsyncEngine) -> tuple[Stranded, ...]:
    async with engine.connect() as connection:
        return tuple(await stranded(connection))


async def _publish(engine: AsyncEngine, app: App | None) -> Published:
    async with engine.begin() as connection:
        await _alone(connection)
        await publish(connection, built_in())
        return Published() if app is None else await publish(connection, app)


async def _alone(connection: AsyncConnection) -> None:
    await connection.exec_driver_sql(_PATIENCE)
    await connection.exec_driver_sql(_ALONE)


def _export(declarations: Declarations, broker_url: str, file: Path) -> None:
    path = urlsplit(broker_url).path.removeprefix("/")
    content = definitions.export(declarations, unquote(path) or "/")
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    file.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
    beside.replace(file)
