"""The topology on a real broker."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from aiormq.abc import AbstractChannel, DeliveredMessage

from filaviva.broker.apply import apply
from filaviva.broker.consumer import Consumer, Delivery
from filaviva.broker.definitions import export
from filaviva.broker.drift import Drift, verify
from filaviva.broker.messages import Confirmed, Outgoing
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.dev import EmbeddedBroker
from filaviva.errors import ConfigurationError, Unreachable
from fixtures.amqp import channel, ready
from fixtures.broker import Broker
from fixtures.management import Management
from fixtures.waiting import until

TOPOLOGY = Topology()
DECLARATIONS = TOPOLOGY.declarations(["llm", "mail"])


def name_of(vhost: str) -> str:
    return urlsplit(vhost).path[1:]


@pytest.mark.broker
async def test_what_was_applied_is_read_back_without_a_difference(
    broker: Broker, vhost: str
) -> None:
    await apply(vhost, DECLARATIONS)
    await apply(vhost, DECLARATIONS)

    assert await verify(broker.management_url, name_of(vhost), DECLARATIONS) == []


@pytest.mark.broker
async def test_imported_definitions_are_the_same_as_applied_ones(
    broker: Broker, vhost: str, management: Management
) -> None:
    management.call("POST", "/api/definitions", export(DECLARATIONS, name_of(vhost)))

    assert await verify(broker.management_url, name_of(vhost), DECLARATIONS) == []
    await apply(vhost, DECLARATIONS)


@pytest.mark.broker
async def test_a_queue_with_other_arguments_is_named_with_both_and_the_way_out(vhost: str) -> None:
    async with channel(vhost) as other:
        await other.queue_declare(
            "filaviva.delay.l05",
            durable=True,
            arguments={"x-queue-type": "quorum", "x-message-ttl": 5},
        )
        await other.exchange_declare("filaviva.jobs", exchange_type="direct", durable=True)

    with pytest.raises(ConfigurationError) as conflict:
        await apply(vhost, DECLARATIONS)

    queue = next(line for line in str(conflict.value).splitlines() if "queue" in line)
    assert "filaviva.delay.l05" in queue
    assert "rabbitmqctl delete_queue filaviva.delay.l05" in queue
    exchange = next(line for line in str(conflict.value).splitlines() if "exchange f" in line)
    assert "found type = direct, expected topic" in exchange


async def test_drift_names_what_is_missing_and_what_a_policy_changed(
    broker: Broker, vhost: str, management: Management
) -> None:
    await apply(vhost, DECLARATIONS)
    where = quote(name_of(vhost), safe="")
    management.call("DELETE", f"/api/queues/{where}/filaviva.work.mail")
    management.call(
        "PUT",
        f"/api/policies/{where}/surprise",
        {"pattern": "llm", "definition": {"max-length": 10}, "apply-to": "queues"},
    )

    async def seen() -> list[Drift]:
        found = await verify(broker.management_url, name_of(vhost), DECLARATIONS)
        return found if len(found) == 4 else []

    drift = await until(seen)  # the management API learns of a policy with its next statistics

    assert [str(one) for one in drift] == [
        "queue filaviva.work.llm: found a policy with max-length = 10, expected no such policy",
        "queue filaviva.work.mail: found nothing, expected a quorum queue",
        "binding filaviva.jobs -> filaviva.work.mail: found nothing, expected 'mail'",
        "binding filaviva.delay.deliver -> filaviva.work.mail: found nothing, expected '#.mail'",
    ]


async def test_an_absent_broker_is_unreachable_and_no_surprise() -> None:
    with pytest.raises(Unreachable):
        await apply("amqp://nobody@127.0.0.1:1/", DECLARATIONS)


async def got(other: AbstractChannel, queue: str) -> DeliveredMessage | None:
    message = await other.basic_get(queue)
    return message if message.body else None


@pytest.mark.broker
async def test_what_the_scheduler_gives_back_is_never_dropped(vhost: str) -> None:
    await apply(vhost, DECLARATIONS)
    async with channel(vhost) as other:
        await other.basic_publish(b"{}", exchange=TOPOLOGY.retry, routing_key="x")
        for _ in range(30):  # from 4.0 on the broker's own limit is 20, and there is no DLX here
            message = await until(lambda: got(other, TOPOLOGY.retry_requests))
            await other.basic_reject(message.delivery_tag, requeue=True)

    assert await ready(vhost, TOPOLOGY.retry_requests) == 1


def node_that_boots_with(state: Path, definitions: dict[str, Any]) -> EmbeddedBroker:
    state.chmod(0o711)
    exported = state / "definitions.json"
    exported.write_text(json.dumps(definitions))
    return EmbeddedBroker(state, definitions=exported)


async def test_a_wiped_broker_comes_back_by_itself_and_so_do_its_clients(tmp_path: Path) -> None:
    node = node_that_boots_with(tmp_path, export(DECLARATIONS))
    received: list[Delivery] = []
    rebuilt: list[str] = []
    stop = asyncio.Event()
    await asyncio.to_thread(node.start)
    try:
        publisher = Publisher(node.url)
        consumer = Consumer(
            node.url,
            TOPOLOGY.work("llm"),
            prefetch=1,
            on_delivery=received.append,
            on_rebuilt=rebuilt.append,
            linger=timedelta(0),
        )
        running = asyncio.create_task(consumer.run(stop))
        await until(lambda: consumer.attached)

        await asyncio.to_thread(node.wipe)

        assert await verify(node.management_url, "/", DECLARATIONS) == []
        wake_up = Outgoing(
            exchange=TOPOLOGY.jobs, routing_key="llm", body=b"{}", message_id="after the wipe"
        )

        async def published() -> bool:
            return await publisher.publish([wake_up]) == [Confirmed()]

        await until(published)
        await until(lambda: received)
        assert received[0].message_id == "after the wipe"
        await until(lambda: rebuilt == ["lost"])
        stop.set()
        await running
        await publisher.close()
    finally:
        node.kill()
        node.epmd.kill()
