"""A relay that dies at any of its steps loses nothing; what it sent twice has one message id."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import outbox
from filaviva.broker.apply import apply
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.database import connect
from filaviva.outbox import NewMessage
from filaviva.relay import Relay
from fixtures.amqp import drained

TOPOLOGY = Topology()
MESSAGE = NewMessage(
    exchange=TOPOLOGY.jobs,
    routing_key="llm",
    message_id="0",
    type="filaviva.wakeup.v1",
    data="{}",
)
ROWS = 30
UNLOCK = text("UPDATE filaviva.outbox SET locked_until = clock_timestamp()")

DYING = """
import asyncio, sys
from filaviva.broker.publisher import Publisher
from filaviva.database import connect
from filaviva.relay import Relay

async def main(database, broker):
    engine = connect(database, name="dying relay", size=2)
    relay = Relay(engine, Publisher(broker), batch=10)
    while await relay.step():
        pass

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    engine = connect(database, name="test", size=2)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize(
    ("step", "twice"),
    [
        ("relay.fetched", 0),
        ("relay.published", 10),
        ("relay.confirmed", 10),
        ("relay.deleted", 0),
    ],
)
async def test_a_relay_killed_at_any_step_loses_nothing(
    engine: AsyncEngine, database: str, vhost: str, step: str, twice: int
) -> None:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    async with engine.begin() as connection:
        await outbox.add(connection, [replace(MESSAGE, message_id=str(n)) for n in range(ROWS)])
        await connection.execute(UNLOCK)

    dying = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", DYING, database, vhost),
        env={**os.environ, "FILAVIVA_FAILPOINTS": f"{step}=exit@2"},
    )
    assert await dying.wait() == -signal.SIGKILL

    publisher = Publisher(vhost)
    async with engine.begin() as connection:
        await connection.execute(UNLOCK)  # its lock has run out
    while await Relay(engine, publisher).step():
        pass
    await publisher.close()

    async with engine.begin() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM filaviva.outbox")) == 0
    arrived = [m.header.properties.message_id for m in await drained(vhost, TOPOLOGY.work("llm"))]
    assert set(arrived) == {str(number) for number in range(ROWS)}
    assert len(arrived) <= ROWS + twice
