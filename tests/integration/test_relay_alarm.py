"""A broker out of memory takes no publishes: nothing is lost, and acks go on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import outbox
from filaviva.broker.apply import apply
from filaviva.broker.consumer import Consumer, Delivery
from filaviva.broker.messages import Confirmed, Outgoing
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.database import connect
from filaviva.dev import EmbeddedBroker
from filaviva.outbox import NewMessage
from filaviva.relay import Relay
from fixtures.broker import Broker
from fixtures.waiting import until

TOPOLOGY = Topology()
MESSAGE = NewMessage(
    exchange=TOPOLOGY.jobs, routing_key="llm", message_id="0", type="filaviva.wakeup.v1", data="{}"
)


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    engine = connect(database, name="test", size=5)
    yield engine
    await engine.dispose()


class Alarm:
    """The memory alarm of a node of ours."""

    def __init__(self, broker: Broker) -> None:
        if not isinstance(broker, EmbeddedBroker):
            pytest.skip("needs rabbitmqctl on the broker")
        self._broker = broker

    async def __aenter__(self) -> None:
        await self._watermark("absolute", "1")

    async def __aexit__(self, *_: object) -> None:
        await self._watermark("0.6")

    async def _watermark(self, *words: str) -> None:
        await asyncio.to_thread(self._broker.ctl, "set_vm_memory_high_watermark", *words)


async def empty(engine: AsyncEngine) -> bool:
    async with engine.begin() as connection:
        return not await connection.scalar(text("SELECT count(*) FROM filaviva.outbox"))


@pytest.mark.broker
async def test_in_an_alarm_rows_stay_acks_go_on_and_afterwards_all_arrives(
    engine: AsyncEngine, broker: Broker, vhost: str
) -> None:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    publisher, stop = Publisher(vhost, confirm_timeout=2), asyncio.Event()
    relay = Relay(engine, publisher, pause=timedelta(seconds=0.2))
    held: list[Delivery] = []
    consumer = Consumer(vhost, TOPOLOGY.work("llm"), prefetch=1, on_delivery=held.append)
    before = [
        Outgoing(exchange=TOPOLOGY.jobs, routing_key="llm", body=b"{}", message_id=f"before-{n}")
        for n in range(2)
    ]
    assert await publisher.publish(before) == [Confirmed()] * 2
    running = [asyncio.create_task(loop.run(stop)) for loop in (relay, consumer)]
    await until(lambda: len(held) == 1)

    async with Alarm(broker):
        async with engine.begin() as connection:
            rows = await outbox.add(
                connection, [replace(MESSAGE, message_id=str(number)) for number in range(20)]
            )
        relay.hand_over(rows)
        await until(lambda: not relay.healthy)
        assert consumer.settle(held[0])
        await until(lambda: len(held) == 2)
        assert not await empty(engine)

    def drained() -> bool:
        for delivery in held:
            consumer.settle(delivery)
        return {str(number) for number in range(20)} <= {d.message_id for d in held}

    await until(drained, seconds=60)
    await until(lambda: empty(engine), seconds=60)
    await until(lambda: relay.healthy)
    stop.set()
    await asyncio.gather(*running)
    await publisher.close()
