"""A database that falls silent without closing a connection: a frozen server, a lost machine."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database import connect
from filaviva.database.fetch import fetch
from filaviva.database.lines import Connected, Lines
from filaviva.database.transaction import transact, unreachable
from filaviva.listening import Listening
from fixtures.amqp import Proxy
from fixtures.waiting import until

PATIENCE = 0.3
SOON = PATIENCE + 4  # the driver takes two seconds for its own goodbye


@pytest.fixture
async def way(postgres_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def remote(way: Proxy) -> AsyncIterator[AsyncEngine]:
    engine = connect(way.url, name="test", patience=PATIENCE)
    yield engine
    await engine.dispose()


async def select(connection: Connected) -> int:
    return int((await fetch(connection, "SELECT 1"))[0][0])


async def test_a_statement_ends_and_its_connection_is_not_used_again(
    way: Proxy, remote: AsyncEngine
) -> None:
    assert await transact(remote, select) == 1

    way.silence()
    began = time.monotonic()
    with pytest.raises(TimeoutError) as silent:
        await transact(remote, select)
    assert time.monotonic() - began < SOON
    assert unreachable(silent.value)

    way.resume()
    assert await transact(remote, select) == 1


async def test_a_kept_line_is_cut(way: Proxy, remote: AsyncEngine) -> None:
    lines = Lines(remote)
    for begins in (lines, lines.single):
        assert await transact(begins, select) == 1

        way.silence()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await transact(begins, select)
        assert time.monotonic() - began < SOON

        way.resume()
        assert await transact(begins, select) == 1


async def test_whoever_listens_listens_anew(way: Proxy, remote: AsyncEngine) -> None:
    heard: list[str | None] = []
    stop = asyncio.Event()
    listening = asyncio.create_task(
        Listening(remote, "filaviva_test", heard.append, every=0.1).run(stop)
    )
    await until(lambda: heard == [None])

    way.silence()
    await until(lambda: way.accepted > 1)  # nothing has ended the connection before, but we did
    way.resume()
    await until(lambda: len(heard) > 1)
    stop.set()
    await listening
