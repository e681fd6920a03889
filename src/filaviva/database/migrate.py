"""Bring the schema up to date, and tell whether it is."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.engine import connect

# Two setups at the same time must not both create tables.
_LOCK = 0x66696C61
# Alembic keeps what it is at for the whole process: one database at a time.
_ALEMBIC = threading.Lock()
_MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(url: str) -> None:
    """Migrate the database at this libpq URL to the newest schema; safe to repeat."""
    with ThreadPoolExecutor(max_workers=1) as thread:  # also works where a loop runs already
        thread.submit(asyncio.run, _migrate(url)).result()


async def _migrate(url: str) -> None:
    engine = connect(url, name="filaviva-setup", size=1)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("SET LOCAL lock_timeout = '30s'"))
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            await connection.execute(text("CREATE SCHEMA IF NOT EXISTS filaviva"))
            await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    # Here, not above: services only compare revisions, and it takes a third of their start to load.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    configuration = Config()
    configuration.set_main_option("script_location", str(_MIGRATIONS))
    configuration.attributes["connection"] = connection
    with _ALEMBIC:
        command.upgrade(configuration, "head")


def newest_revision() -> str:
    """Name the revision that this release expects."""
    scripts = (_MIGRATIONS / "versions").glob("[0-9]*_*.py")
    return max(script.name.partition("_")[0] for script in scripts)


async def present_revision(engine: AsyncEngine) -> str | None:
    """Name the revision that the database is at; None if it was never set up."""
    async with engine.connect() as connection:
        known = await connection.scalar(text("SELECT to_regclass('filaviva.schema_version')"))
        if known is None:
            return None
        found = await connection.scalar(text("SELECT version_num FROM filaviva.schema_version"))
        return None if found is None else str(found)
