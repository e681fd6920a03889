"""Migrations keep what is there."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from filaviva import database
from filaviva.database import connect, migrate
from filaviva.database.migrate import newest_revision, present_revision

MIGRATIONS = Path(database.__file__).parent / "migrations"
_JOB = """
INSERT INTO filaviva.jobs (id, tenant, type, version, queue, max_attempts, payload, fingerprint,
    idempotency_key, correlation_id)
VALUES (gen_random_uuid(), 'default', 'a.b', 1, 'llm', 5, '{}', '', 'k', '')
"""
_EVENT = "INSERT INTO filaviva.job_events (job_id, kind) SELECT id, 'state' FROM filaviva.jobs"
_CALL = """
INSERT INTO filaviva.llm_calls (job_id, attempt, provider, model)
SELECT id, 1, 'openai', 'gpt' FROM filaviva.jobs, generate_series(1, 2)
"""


def test_the_newest_revision_is_the_one_that_the_scripts_lead_to() -> None:
    configuration = Config()
    configuration.set_main_option("script_location", str(MIGRATIONS))

    assert ScriptDirectory.from_config(configuration).get_current_head() == newest_revision()


def first_revision(connection: Connection) -> None:
    configuration = Config()
    configuration.set_main_option("script_location", str(MIGRATIONS))
    configuration.attributes["connection"] = connection
    command.upgrade(configuration, "0001")


async def test_a_database_of_the_first_revision_is_brought_up_with_its_jobs(
    empty_database: str,
) -> None:
    engine = connect(empty_database, name="test", size=1)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE SCHEMA filaviva"))
        await connection.run_sync(first_revision)
        for statement in (_JOB, _EVENT, _CALL):
            await connection.execute(text(statement))

    await asyncio.to_thread(migrate, empty_database)

    assert await present_revision(engine) == newest_revision()
    async with engine.connect() as connection:
        jobs = await connection.scalar(text("SELECT count(*) FROM filaviva.jobs"))
        keys = await connection.scalar(text("SELECT count(DISTINCT key) FROM filaviva.llm_calls"))
    assert (jobs, keys) == (1, 2)
    await engine.dispose()


def test_a_process_may_migrate_several_databases_at_once(empty_databases: list[str]) -> None:
    with ThreadPoolExecutor() as threads:
        list(threads.map(migrate, empty_databases))

    assert [asyncio.run(revision(url)) for url in empty_databases] == [newest_revision()] * 3


async def revision(url: str) -> str | None:
    engine = connect(url, name="test", size=1)
    try:
        return await present_revision(engine)
    finally:
        await engine.dispose()
