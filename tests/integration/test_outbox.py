"""Outbox rows leave with the caller's commit and are born locked for their committer."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import outbox
from filaviva.database import connect, tables
from filaviva.outbox import NewMessage

MESSAGE = NewMessage(
    exchange="filaviva.jobs",
    routing_key="llm",
    message_id="1:1:1",
    type="filaviva.wakeup.v1",
    data='{"amount": 0.10, "id": 12345678901234567890123}',
)


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    engine = connect(database, name="test", size=5)
    yield engine
    await engine.dispose()


async def stored(engine: AsyncEngine) -> list[str]:
    async with engine.begin() as connection:
        return list(await connection.scalars(select(tables.outbox.c.message_id)))


async def test_rows_come_back_in_order_with_their_numbers_exact(engine: AsyncEngine) -> None:
    job = uuid4()
    messages = [replace(MESSAGE, message_id=f"{n}", job_id=job, epoch=n) for n in range(50)]

    async with engine.begin() as connection:
        rows = await outbox.add(connection, messages)

    assert [row.message_id for row in rows] == [message.message_id for message in messages]
    assert [row.id for row in rows] == sorted(row.id for row in rows)
    assert rows[3].data == '{"id": 12345678901234567890123, "amount": 0.10}'
    assert (rows[3].job_id, rows[3].epoch, rows[3].pause_seconds) == (job, 3, None)
    assert rows[3].mandatory
    assert not rows[3].parked


async def test_a_rolled_back_transaction_leaves_no_row(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        await outbox.add(connection, [MESSAGE])
        await connection.rollback()

    assert await stored(engine) == []


async def test_a_row_is_born_locked_by_its_committer(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await outbox.add(connection, [MESSAGE])
        locked = await connection.scalar(
            text(
                "SELECT locked_until - clock_timestamp() BETWEEN '9 seconds' AND '10 seconds'"
                " FROM filaviva.outbox"
            )
        )

    assert locked


async def test_the_pause_is_what_the_database_clock_has_left(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        now = await connection.scalar(text("SELECT clock_timestamp()"))
        [row] = await outbox.add(
            connection, [replace(MESSAGE, not_before=now + timedelta(seconds=5))]
        )

    assert row.pause_seconds is not None
    assert 4 < row.pause_seconds <= 5


async def test_any_statement_can_return_its_rows(engine: AsyncEngine) -> None:
    statement = (
        "INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data)"
        f" VALUES ('e', 'k', 'm', 't.v1', '{{}}') RETURNING {outbox.RETURNING}, 1 AS more"
    )
    async with engine.begin() as connection:
        rows = outbox.rows(await connection.exec_driver_sql(statement))

    assert [(row.exchange, row.routing_key, row.message_id) for row in rows] == [("e", "k", "m")]


async def test_what_is_too_large_is_refused_at_the_insert(engine: AsyncEngine) -> None:
    with pytest.raises(IntegrityError):
        async with engine.begin() as connection:
            await outbox.add(connection, [replace(MESSAGE, data='"' + "x" * 70_000 + '"')])


async def test_nothing_to_add_asks_nothing(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        assert await outbox.add(connection, []) == []


async def test_the_backlog_tells_what_waits_and_what_is_parked(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await outbox.add(connection, [replace(MESSAGE, message_id=f"{n}") for n in range(3)])
        await connection.execute(
            text("UPDATE filaviva.outbox SET parked_at = now() WHERE message_id = '0'")
        )
        backlog = await outbox.backlog(connection)

    assert (backlog.pending, backlog.parked) == (2, 1)
    assert backlog.oldest is not None
    assert datetime.now(UTC) - backlog.oldest < timedelta(minutes=1)
