"""What our publisher sends is what contracts/conformance/publishing.json says."""

import json
from datetime import datetime
from typing import Any

import aio_pika
import pytest
from aiormq.abc import DeliveredMessage
from pydantic import ValidationError

from filaviva.event_publisher import Publisher
from fixtures.amqp import drained
from fixtures.conformance import CONTRACTS, recorded, written_out

CASES = recorded("publishing.json")
SENT = [case for case in CASES if "message" in case]
OPTIONS = {"tenant": "tenant", "correlationId": "correlation_id", "traceparent": "traceparent"}


async def publish(publisher: Publisher, event: dict[str, Any]) -> None:
    contract = CONTRACTS[event["type"], event["version"]]
    # As a type checker would: what the contract does not have is no argument of it.
    message = contract.model_validate(written_out(event["data"]), extra="forbid")
    more = {name: event[key] for key, name in OPTIONS.items() if key in event}
    time = datetime.fromisoformat(event["time"])
    await publisher.publish(
        message, id=event["id"], subject=event.get("subject"), time=time, **more
    )


def seen(sent: DeliveredMessage) -> dict[str, Any]:
    """Write a message down as the set does; what is optional may be written out as null."""
    properties, body = sent.header.properties, json.loads(sent.body)
    body["data"] = {name: value for name, value in body["data"].items() if value is not None}
    more = {"correlationId": properties.correlation_id} if properties.correlation_id else {}
    assert properties.timestamp is not None
    return {
        "exchange": sent.exchange,
        "routingKey": sent.routing_key,
        "properties": {
            "contentType": properties.content_type,
            "deliveryMode": properties.delivery_mode,
            "messageId": properties.message_id,
            "type": properties.message_type,
            "timestamp": int(properties.timestamp.timestamp()),
            "headers": dict(properties.headers or {}),
            **more,
        },
        "body": body,
    }


async def test_what_is_published_is_what_the_set_says(vhost: str) -> None:
    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("filaviva.events", "topic", durable=True)
        queue = await channel.declare_queue("books", durable=True)
        await queue.bind(exchange, "#")
        async with Publisher(vhost, source="/billing") as publisher:
            for case in SENT:
                await publish(publisher, case["event"])

    found = await drained(vhost, "books")

    assert [seen(sent) for sent in found] == [case["message"] for case in SENT]


@pytest.mark.parametrize(
    "case", [case for case in CASES if "refused" in case], ids=lambda case: case["name"]
)
async def test_what_does_not_fit_is_not_published(case: dict[str, Any], vhost: str) -> None:
    expected = ValidationError if case["refused"] == "invalid_input" else ValueError

    async with Publisher(vhost, source="/billing") as publisher:
        with pytest.raises(expected):
            await publish(publisher, case["event"])
