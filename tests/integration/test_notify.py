"""Telling who waits: one notification for many changes, in a transaction of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database import connect
from filaviva.notify import CHANNEL, EVERYTHING, Notifier
from fixtures.waiting import until


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[list[str]]:
    heard: list[str] = []
    connection = await asyncpg.connect(url)
    await connection.add_listener(CHANNEL, lambda *told: heard.append(told[3]))
    yield heard
    await connection.close()


async def test_many_changes_become_one_notification(database: str, engine: AsyncEngine) -> None:
    notifier, several = Notifier(engine), [uuid4() for _ in range(50)]

    async with listening(database) as heard:
        for job in several * 3:
            notifier.changed([job])
        assert await notifier.step() == 50
        await until(lambda: heard)

    assert len(heard) == 1
    assert {UUID(each) for each in heard[0].split(",")} == set(several)


async def test_more_changes_than_fit_are_told_as_everything(
    database: str, engine: AsyncEngine
) -> None:
    notifier = Notifier(engine)

    async with listening(database) as heard:
        notifier.changed(uuid4() for _ in range(5000))
        await notifier.step()
        await until(lambda: heard)

    assert heard == [EVERYTHING]


async def test_as_many_as_are_named_fit_into_one_notification(
    database: str, engine: AsyncEngine
) -> None:
    notifier = Notifier(engine)

    async with listening(database) as heard:
        notifier.changed(uuid4() for _ in range(200))
        await notifier.step()
        await until(lambda: heard)

    assert len(heard[0].split(",")) == 200


async def test_nothing_changed_is_not_told(engine: AsyncEngine) -> None:
    assert await Notifier(engine).step() == 0


async def test_the_loop_gathers_while_it_pauses_and_tells_the_rest_at_its_end(
    database: str, engine: AsyncEngine
) -> None:
    notifier, stop = Notifier(engine, every=0.2), asyncio.Event()
    running = asyncio.create_task(notifier.run(stop))

    async with listening(database) as heard:
        notifier.changed([uuid4()])
        await until(lambda: len(heard) == 1)
        for _ in range(30):
            notifier.changed([uuid4()])
            await asyncio.sleep(0)
        await until(lambda: len(heard) == 2)
        notifier.changed([uuid4()])
        stop.set()
        await asyncio.wait_for(running, 10)
        await until(lambda: len(heard) == 3)

    assert [len(each.split(",")) for each in heard] == [1, 30, 1]


async def test_a_database_that_is_away_ends_no_loop() -> None:
    engine = connect("postgresql://nobody@127.0.0.1:1/nowhere", name="test")
    notifier = Notifier(engine)
    notifier.changed([uuid4()])

    assert await notifier.step() == 1
    await engine.dispose()


async def test_a_server_that_refuses_the_connection_ends_no_loop(database: str) -> None:
    # The driver's own error, as while a server starts up: SQLAlchemy lets it through.
    parts = urlsplit(database)
    engine = connect(urlunsplit(parts._replace(path="/nowhere")), name="test")
    notifier = Notifier(engine)
    notifier.changed([uuid4()])

    assert await notifier.step() == 1
    await engine.dispose()
