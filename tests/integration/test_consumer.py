"""Consuming on a real broker: every delivery is settled once, and no fault leaves us deaf."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from filaviva.broker.apply import apply
from filaviva.broker.consumer import Consumer, Delivery
from filaviva.broker.messages import Confirmed, Outgoing
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from fixtures.amqp import Proxy, channel, drained, ready
from fixtures.broker import Broker
from fixtures.management import Management
from fixtures.waiting import until

TOPOLOGY = Topology()
DECLARATIONS = TOPOLOGY.declarations(["llm"])
QUEUE = TOPOLOGY.work("llm")


@pytest.fixture
async def work(vhost: str) -> str:
    await apply(vhost, DECLARATIONS)
    return vhost


async def publish(url: str, count: int, *, first: int = 0) -> None:
    publisher = Publisher(url)
    messages = [
        Outgoing(
            exchange=TOPOLOGY.jobs,
            routing_key="llm",
            body=b'{"number":%d}' % number,
            message_id=f"message-{number}",
            type="filaviva.wakeup.v1",
            correlation_id="correlation",
            headers={"traceparent": "00-1-2-01"},
        )
        for number in range(first, first + count)
    ]
    assert await publisher.publish(messages) == [Confirmed()] * count
    await publisher.close()


class Receiver:
    """A consumer and what it received."""

    def __init__(self, url: str, *, settling: bool = False, **options: Any) -> None:
        self.deliveries: list[Delivery] = []
        self.rebuilt: list[str] = []
        self.settling = settling
        options = {"prefetch": 10, "linger": timedelta(seconds=2), **options}
        self.consumer = Consumer(
            url, QUEUE, on_delivery=self._receive, on_rebuilt=self.rebuilt.append, **options
        )

    @property
    def ids(self) -> list[str | None]:
        return [delivery.message_id for delivery in self.deliveries]

    def _receive(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if self.settling:
            self.consumer.settle(delivery)

    async def receives(self, count: int) -> None:
        await until(lambda: len(self.deliveries) >= count)


@asynccontextmanager
async def receiving(url: str, **options: Any) -> AsyncIterator[Receiver]:
    """A consumer that runs for as long as the block."""
    receiver, stop = Receiver(url, **options), asyncio.Event()
    running = asyncio.create_task(receiver.consumer.run(stop))
    try:
        yield receiver
    finally:
        stop.set()
        await running


@pytest.mark.broker
async def test_a_delivery_has_all_that_was_published(work: str) -> None:
    await publish(work, 1)

    async with receiving(work) as receiver:
        await receiver.receives(1)
        [delivery] = receiver.deliveries
        receiver.consumer.settle(delivery)

    assert delivery.body == b'{"number":0}'
    assert delivery.message_id == "message-0"
    assert delivery.type == "filaviva.wakeup.v1"
    assert delivery.correlation_id == "correlation"
    assert delivery.content_type == "application/cloudevents+json"
    assert delivery.headers["traceparent"] == "00-1-2-01"
    assert (delivery.exchange, delivery.routing_key) == (TOPOLOGY.jobs, "llm")
    assert not delivery.redelivered


@pytest.mark.broker
async def test_every_message_comes_once_and_in_order_and_none_stays(work: str) -> None:
    await publish(work, 2000)

    async with receiving(work, settling=True, prefetch=100) as receiver:
        await receiver.receives(2000)

    assert receiver.ids == [f"message-{number}" for number in range(2000)]
    assert await ready(work, QUEUE) == 0


@pytest.mark.broker
async def test_a_running_job_is_never_acked_past(work: str) -> None:
    await publish(work, 10)

    async with receiving(work, linger=timedelta(0)) as receiver:
        await receiver.receives(10)
        for delivery in receiver.deliveries[1:]:
            receiver.consumer.settle(delivery)

    [left] = await drained(work, QUEUE)
    assert left.header.properties.message_id == "message-0"


@pytest.mark.broker
async def test_settlements_in_any_order_never_close_the_channel(work: str) -> None:
    await publish(work, 300)

    async with receiving(work, prefetch=60) as receiver:
        consumer = receiver.consumer
        for start in range(0, 300, 30):
            await receiver.receives(start + 30)
            batch = receiver.deliveries[start : start + 30]
            for delivery in (*batch[10::2], *batch[0:10], *batch[11::2]):
                assert consumer.settle(delivery)
                if delivery.tag % 7 == 0:
                    await asyncio.sleep(0)
            assert not consumer.settle(batch[3])

    assert receiver.rebuilt == []
    assert await ready(work, QUEUE) == 0


@pytest.mark.broker
async def test_a_rejected_delivery_goes_to_the_dead_letters(work: str) -> None:
    await publish(work, 2)

    async with receiving(work) as receiver:
        await receiver.receives(2)
        receiver.consumer.reject(receiver.deliveries[0])
        receiver.consumer.settle(receiver.deliveries[1])

    dead = await until(lambda: drained(work, TOPOLOGY.dead_letters))
    assert [message.header.properties.message_id for message in dead] == ["message-0"]


@pytest.mark.broker
async def test_what_is_handed_back_again_and_again_becomes_a_dead_letter(work: str) -> None:
    await publish(work, 1)

    async with receiving(work) as receiver:
        seen = 0
        while seen < 21:  # limit N means N + 1 deliveries
            await receiver.receives(seen + 1)
            receiver.consumer.hand_back(receiver.deliveries[seen])
            seen += 1
        [dead] = await until(lambda: drained(work, TOPOLOGY.dead_letters))

    assert len(receiver.deliveries) == 21
    deaths = dead.header.properties.headers["x-death"]
    assert deaths[0]["reason"] == "delivery_limit"


async def test_at_stop_what_is_held_may_still_be_settled(work: str) -> None:
    await publish(work, 3)
    stop, receiver = asyncio.Event(), Receiver(work)
    running = asyncio.create_task(receiver.consumer.run(stop))
    await receiver.receives(3)

    stop.set()
    await until(lambda: receiver.consumer._stopping)  # noqa: SLF001 - it lingers, nothing shows it
    for delivery in receiver.deliveries:
        assert receiver.consumer.settle(delivery)
    await running

    assert await ready(work, QUEUE) == 0


async def test_what_comes_after_the_stop_is_handed_back(work: str) -> None:
    async with receiving(work) as receiver:
        await until(lambda: receiver.consumer.attached)
    await publish(work, 1)

    assert receiver.deliveries == []
    assert await ready(work, QUEUE) == 1


@pytest.mark.broker
async def test_a_cut_connection_is_rebuilt_and_everything_open_comes_again(work: str) -> None:
    await publish(work, 5)
    async with Proxy(work) as proxy, receiving(proxy.url) as receiver:
        await receiver.receives(5)
        await receiver.consumer.resize(10, settling=receiver.deliveries[:1])  # it is flushed
        old = receiver.deliveries[1]

        proxy.cut()

        await receiver.receives(9)
        assert receiver.rebuilt == ["lost"]
        assert not receiver.consumer.settle(old)
        again = receiver.deliveries[5:]
        assert all(delivery.redelivered for delivery in again)
        for delivery in again:
            assert receiver.consumer.settle(delivery)

    assert await ready(work, QUEUE) == 0


@pytest.mark.broker
async def test_a_deleted_queue_is_not_ready_and_a_new_one_is_consumed(work: str) -> None:
    async with receiving(work, settling=True) as receiver:
        await until(lambda: receiver.consumer.attached)

        async with channel(work) as other:
            await other.queue_delete(QUEUE)
        await until(lambda: "NOT_FOUND" in "".join(receiver.consumer.problems()))
        await apply(work, DECLARATIONS)

        await publish(work, 1)
        await receiver.receives(1)
        assert receiver.rebuilt == ["canceled"]
        assert receiver.consumer.problems() == []


async def test_a_queue_that_comes_later_is_consumed_when_it_is_there(vhost: str) -> None:
    async with receiving(vhost, settling=True) as receiver:
        await until(lambda: "NOT_FOUND" in "".join(receiver.consumer.problems()))
        assert not receiver.consumer.attached

        await apply(vhost, DECLARATIONS)
        await publish(vhost, 1)

        await receiver.receives(1)
        assert receiver.rebuilt == []


@pytest.mark.broker
async def test_a_deaf_consumer_is_found_and_rebuilt(work: str) -> None:
    async with receiving(work, settling=True, deaf_after=timedelta(seconds=1)) as receiver:
        await until(lambda: receiver.consumer.attached)
        await go_deaf(receiver.consumer)

        await publish(work, 1)

        await receiver.receives(1)
        assert receiver.rebuilt == ["deaf"]


async def test_a_full_consumer_is_not_deaf(work: str) -> None:
    await publish(work, 5)  # two are held, three wait: there is no room for them

    async with receiving(work, deaf_after=timedelta(seconds=0.05), prefetch=2) as receiver:
        await receiver.receives(2)
        await publish(work, 20, first=5)  # meanwhile it was looked at many times
        assert receiver.rebuilt == []
        assert len(receiver.deliveries) == 2


async def go_deaf(consumer: Consumer) -> None:
    """Bring about what a 4.3 node does: no delivery any more, and nothing shows it."""
    session = consumer._session  # noqa: SLF001 - no public way leads there
    assert session is not None
    [(tag, callback)] = session.channel.consumers.items()
    await session.channel.basic_cancel(tag)
    session.channel.consumers[tag] = callback


@pytest.mark.broker
async def test_acking_a_detached_job_brings_no_new_delivery(work: str) -> None:
    await publish(work, 10)

    async with receiving(work, prefetch=3) as receiver:
        await receiver.receives(3)
        consumer, (detached, held, other) = receiver.consumer, tuple(receiver.deliveries)

        await consumer.resize(0, settling=[detached])  # three slots, one detached, two held

        assert await ready(work, QUEUE) == 7
        assert len(receiver.deliveries) == 3
        assert consumer.attached

        consumer.settle(held)
        await consumer.resize(1)
        await receiver.receives(4)
        for delivery in (other, *receiver.deliveries[3:]):
            consumer.settle(delivery)
        await receiver.receives(5)
    assert receiver.rebuilt == []


@pytest.mark.broker
async def test_a_new_size_outlives_the_connection(work: str) -> None:
    async with Proxy(work) as proxy, receiving(proxy.url, prefetch=1) as receiver:
        await until(lambda: receiver.consumer.attached)
        await receiver.consumer.resize(4)
        proxy.cut()
        await until(lambda: receiver.rebuilt == ["lost"])

        await publish(work, 10)

        await receiver.receives(4)


async def test_a_prefetch_of_nothing_takes_nothing(work: str) -> None:
    await publish(work, 1)

    async with receiving(work, prefetch=0) as receiver:
        await until(lambda: receiver.consumer.attached)
        assert await ready(work, QUEUE) == 1
        await receiver.consumer.resize(1)
        await receiver.receives(1)


@pytest.mark.broker
async def test_a_delivery_held_too_long_comes_again_and_we_do_not_go_deaf(
    broker: Broker, work: str
) -> None:
    if not version(broker).startswith("4.3"):
        pytest.skip("older brokers do not take the timeout from the consumer")
    await publish(work, 1)
    timeout = timedelta(seconds=1)

    async with receiving(work, consumer_timeout=timeout) as receiver:
        await receiver.receives(2)
        assert receiver.rebuilt == ["canceled"]
        assert not receiver.consumer.settle(receiver.deliveries[0])
        receiver.consumer.settle(receiver.deliveries[1])


def version(broker: Broker) -> str:
    return str(Management(broker.management_url).call("GET", "/api/overview")["rabbitmq_version"])
