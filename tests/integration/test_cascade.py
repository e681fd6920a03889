"""The delay cascade on real brokers: never early, hardly late, nothing in anybody's way."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from filaviva.broker.apply import apply
from filaviva.broker.consumer import Consumer, Delivery
from filaviva.broker.messages import Confirmed, Outgoing
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from fixtures.amqp import ready
from fixtures.waiting import until

pytestmark = pytest.mark.broker

TOPOLOGY = Topology()
HOUR = 3600.0


class Cascade:
    """Sends messages through the cascade and notes when they come out."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.publisher = Publisher(url)
        self.arrived: dict[str, list[float]] = {}
        self.consumer = Consumer(url, TOPOLOGY.work("llm"), prefetch=500, on_delivery=self._receive)

    async def send(self, pauses: Sequence[tuple[str, float]], queue: str = "llm") -> float:
        """Publish messages with their pauses; return when their pauses began."""
        messages = []
        for message_id, pause in pauses:
            exchange, key = TOPOLOGY.delay_route(pause, queue)
            messages.append(
                Outgoing(exchange=exchange, routing_key=key, body=b"{}", message_id=message_id)
            )
        began = time.monotonic()
        assert await self.publisher.publish(messages) == [Confirmed()] * len(messages)
        return began

    async def arrival(self, message_id: str, nth: int = 1) -> float:
        """Wait for the nth arrival of a message; return when it was."""
        await until(lambda: len(self.arrived.get(message_id, ())) >= nth, every=0.005)
        return self.arrived[message_id][nth - 1]

    def _receive(self, delivery: Delivery) -> None:
        assert delivery.message_id is not None
        self.arrived.setdefault(delivery.message_id, []).append(time.monotonic())
        self.consumer.settle(delivery)


@pytest.fixture
async def passage(vhost: str) -> AsyncIterator[Cascade]:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    cascade, stop = Cascade(vhost), asyncio.Event()
    running = asyncio.create_task(cascade.consumer.run(stop))
    await until(lambda: cascade.consumer.attached)
    yield cascade
    stop.set()
    await running
    await cascade.publisher.close()


@pytest.mark.alone
async def test_pauses_are_never_early_and_hardly_late(passage: Cascade) -> None:
    chance = random.Random(5)  # noqa: S311 - a fixed sample
    pauses = {f"m{n}": round(chance.uniform(0.3, 8), 2) for n in range(60)}
    pauses |= {"shortest": 0.3, "all-ones": 6.3, "one-one": 6.4, "longest": 8.0}

    began = {}
    for message_id, pause in pauses.items():  # one by one, as retries come
        began[message_id] = await passage.send([(message_id, pause)])

    late = []
    for message_id, pause in pauses.items():
        late.append(await passage.arrival(message_id) - began[message_id] - pause)
    late.sort()
    assert late[0] >= 0
    # Rounding up to the tick is part of what a pause may be late.
    within = sum(seconds <= 0.3 for seconds in late) / len(late)
    assert within >= 0.95, f"{within:.0%} within 300 ms, the latest {late[-1]:.3f} s"


async def test_one_message_takes_six_pauses_through_the_same_levels(passage: Cascade) -> None:
    for number in range(1, 7):
        began = await passage.send([("retried", 0.3)])

        assert await passage.arrival("retried", number) >= began + 0.3

    assert len(passage.arrived["retried"]) == 6


async def test_an_hour_blocks_no_second(passage: Cascade) -> None:
    await passage.send([(f"hour-{number}", HOUR + 1) for number in range(100)])

    began = await passage.send([("second", 1.0)])

    assert 1.0 <= await passage.arrival("second") - began < 2.5
    assert list(passage.arrived) == ["second"]


async def test_messages_for_a_queue_that_is_gone_block_nobody(passage: Cascade) -> None:
    # The broker's dead-letter worker stops for good after 32 that nobody takes.
    await passage.send([(f"lost-{number}", 0.5) for number in range(60)], queue="gone")

    began = await passage.send([("good", 0.5)])

    assert await passage.arrival("good") - began < 2.5
    unroutable = TOPOLOGY.unroutable
    await until(lambda: _count(passage.url, unroutable, 60))


async def _count(url: str, queue: str, expected: int) -> bool:
    return await ready(url, queue) == expected


async def test_a_burst_arrives_whole_and_once(passage: Cascade) -> None:
    began = await passage.send([(f"m{number}", 0.5 + number % 7 / 10) for number in range(1000)])

    await until(lambda: len(passage.arrived) == 1000, seconds=30)

    assert all(len(times) == 1 for times in passage.arrived.values())
    for number in range(1000):
        assert passage.arrived[f"m{number}"][0] >= began + 0.5 + number % 7 / 10
