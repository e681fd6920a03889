"""Lines: kept connections that survive what the server refuses, and none that is doubtful."""

import asyncio

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.database.lines import Connected, Lines
from filaviva.database.transaction import transact, unreachable
from fixtures.waiting import until

BACKEND = "SELECT pg_backend_pid()"


async def backend(lines: Lines) -> int:
    return int((await transact(lines.single, lambda line: fetch(line, BACKEND)))[0][0])


async def count(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return int((await fetch(connection, "SELECT count(*) FROM kept"))[0][0])


@pytest.fixture
async def lines(engine: AsyncEngine) -> Lines:
    async with engine.begin() as connection:
        await connection.exec_driver_sql("CREATE TABLE kept (n integer PRIMARY KEY)")
    return Lines(engine)


async def test_the_same_connection_serves_again(lines: Lines) -> None:
    assert await backend(lines) == await backend(lines)


async def test_work_at_the_same_time_has_a_line_each(lines: Lines) -> None:
    async def hold() -> int:
        async with lines.line() as line:
            found = (await line.fetch("SELECT pg_backend_pid(), pg_sleep(0.05)", ()))[0][0]
            return int(found)

    assert len(set(await asyncio.gather(*(hold() for _ in range(3))))) == 3


async def test_a_transaction_commits_all_or_nothing(engine: AsyncEngine, lines: Lines) -> None:
    async def both(line: Connected) -> None:
        await fetch(line, "INSERT INTO kept VALUES (1)")
        await fetch(line, "INSERT INTO kept VALUES (1)")

    with pytest.raises(asyncpg.UniqueViolationError):
        await transact(lines, both)
    assert await count(engine) == 0

    await transact(lines, lambda line: fetch(line, "INSERT INTO kept VALUES (2)"))
    assert await count(engine) == 1


async def test_a_refused_statement_leaves_the_line_sound(lines: Lines) -> None:
    before = await backend(lines)

    with pytest.raises(asyncpg.PostgresSyntaxError):
        await transact(lines.single, lambda line: fetch(line, "SELEKT 1"))
    with pytest.raises(DBAPIError):
        await transact(lines, lambda line: line.connection.execute(text("SELECT * FROM nowhere")))

    assert await backend(lines) == before


async def test_a_line_that_was_cut_is_replaced(engine: AsyncEngine, lines: Lines) -> None:
    before = await backend(lines)
    async with engine.connect() as other:
        await fetch(other, "SELECT pg_terminate_backend($1)", (before,))

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)) as lost:
        await backend(lines)

    assert unreachable(lost.value)
    assert await backend(lines) != before


async def test_a_line_whose_work_was_stopped_midway_is_not_used_again(
    engine: AsyncEngine, lines: Lines
) -> None:
    before = await backend(lines)

    async def sleep(line: Connected) -> None:
        await fetch(line, "INSERT INTO kept VALUES (3)")
        await fetch(line, "SELECT pg_sleep(30)")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(transact(lines, sleep), 0.2)

    assert await backend(lines) != before
    assert await count(engine) == 0


async def test_lines_end_with_their_engine(engine: AsyncEngine, lines: Lines) -> None:
    before = await backend(lines)

    await engine.dispose()

    async with engine.connect() as connection:
        there = "SELECT 1 FROM pg_stat_activity WHERE pid = $1"

        async def gone() -> bool:
            return not await fetch(connection, there, (before,))

        await until(gone)
