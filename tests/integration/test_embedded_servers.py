"""The embedded servers: ready when start returns, kept over SIGKILL, apart from each other."""

import os
import signal
from pathlib import Path

import aio_pika
import asyncpg
import pytest

from filaviva.dev import EmbeddedPostgres
from fixtures.management import Management
from fixtures.waiting import until


async def test_a_test_gets_a_database_of_its_own(empty_database: str) -> None:
    connection = await asyncpg.connect(empty_database)
    tables = await connection.fetch(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = 'public'"
    )
    await connection.close()
    assert tables == []


@pytest.mark.broker
async def test_a_test_gets_a_virtual_host_of_its_own(vhost: str, management: Management) -> None:
    connection = await aio_pika.connect(vhost)
    async with connection:
        channel = await connection.channel()
        arguments = {"x-queue-type": "quorum"}
        await channel.declare_queue("first", durable=True, arguments=arguments)
    assert management.queue(vhost, "first")["type"] == "quorum"


@pytest.mark.broker
def test_the_version_in_the_name_of_a_test_is_the_one_it_runs_on(
    management: Management, request: pytest.FixtureRequest
) -> None:
    running = management.call("GET", "/api/overview")["rabbitmq_version"]
    assert running.startswith(request.node.callspec.id)


async def test_the_database_at_hand_is_migrated(database: str) -> None:
    await _execute(database, "SELECT id, epoch, fence FROM filaviva.jobs")


async def test_postgres_is_quick_by_no_lie_about_durability(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    fsync = await connection.fetchval("SHOW fsync")
    commit = await connection.fetchval("SHOW synchronous_commit")
    await connection.close()
    assert (fsync, commit) == ("on", "on")


async def test_postgres_keeps_what_was_committed_before_sigkill(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    try:
        server.start()
        await _execute(server.url, "CREATE TABLE kept AS SELECT 1 AS one")
        before = server.pid
        server.kill()
        server.start()
        assert server.pid != before
        await _execute(server.url, "SELECT one FROM kept")
    finally:
        server.stop()


async def test_postgres_starts_at_once_beside_its_dead_predecessor_that_nobody_has_looked_at(
    tmp_path: Path,
) -> None:
    first, second = EmbeddedPostgres(tmp_path), EmbeddedPostgres(tmp_path)
    try:
        first.start()
        os.kill(first.pid, signal.SIGKILL)
        dead = Path(f"/proc/{first.pid}/stat")  # nobody waits for it: it stays, as by a slow init
        await until(lambda: dead.read_text().rpartition(")")[2].split()[0] == "Z")

        second.start()

        assert " Z " in dead.read_text()  # noqa: ASYNC240 - not a file that one waits for
        await _execute(second.url, "SELECT 1")
    finally:
        second.stop()
        first.kill()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
