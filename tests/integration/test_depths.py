"""Looking at work queues, on a real broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filaviva.broker.apply import apply
from filaviva.broker.depths import QueueDepths
from filaviva.broker.messages import CONFIRMED, Outgoing
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.errors import Unreachable
from fixtures.waiting import until

TOPOLOGY = Topology()


@pytest.fixture
async def depths(vhost: str) -> AsyncIterator[QueueDepths]:
    await apply(vhost, TOPOLOGY.declarations(["llm", "mail"]))
    depths, stop = QueueDepths(vhost), asyncio.Event()
    closing = asyncio.create_task(depths.run(stop))
    yield depths
    stop.set()
    await closing


@pytest.mark.broker
async def test_ready_messages_are_counted_and_missing_queues_left_out(
    vhost: str, depths: QueueDepths
) -> None:
    publisher = Publisher(vhost)
    messages = [
        Outgoing(exchange=TOPOLOGY.jobs, routing_key="llm", body=b"{}", message_id=str(n))
        for n in range(3)
    ]
    assert await publisher.publish(messages) == [CONFIRMED] * 3
    await publisher.close()

    async def counted() -> bool:
        wanted = ["gone", "llm", "mail", "never"]
        return await depths.ready(wanted) == {"llm": 3, "mail": 0}

    await until(counted)


@pytest.mark.broker
async def test_a_name_that_no_queue_can_have_is_left_out_and_the_others_are_counted(
    depths: QueueDepths,
) -> None:
    wanted = ["a\x1b[31m", "b" * 400, "llm", "队列"]

    assert await depths.ready(wanted) == {"llm": 0}


async def test_a_broker_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        await QueueDepths("amqp://guest:guest@127.0.0.1:1/").ready(["llm"])
