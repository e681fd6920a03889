"""Reading wake-ups: whatever is in a message, it is a wake-up that can be claimed, or none."""

import json
from typing import Any
from uuid import uuid4

import pytest

from filaviva.broker.consumer import Delivery
from filaviva_worker.wakeup import read

JOB = uuid4()
GOOD = {"jobId": str(JOB), "epoch": 3, "type": "invoice.extract", "version": 1, "queue": "llm"}


def delivery(content: Any, *, message_id: Any = "m", **event: Any) -> Delivery:
    body = {
        "specversion": "1.0",
        "id": "e",
        "source": "filaviva",
        "type": "filaviva.wakeup.v1",
        "data": content,
    } | event
    return Delivery(
        body=json.dumps(body).encode(),
        content_type="application/cloudevents+json",
        message_id=message_id,
        type=None,
        correlation_id=None,
        headers={},
        exchange="filaviva.jobs",
        routing_key="llm",
        redelivered=False,
        tag=1,
        session=None,
    )


def test_a_wake_up_is_read() -> None:
    wake = read(delivery(GOOD))

    assert wake is not None
    assert (wake.message_id, wake.job_id, wake.epoch, wake.version) == ("m", JOB, 3, 1)


def test_without_a_message_id_the_events_id_tells_copies_apart() -> None:
    wake = read(delivery(GOOD, message_id=None))

    assert wake is not None
    assert wake.message_id == "e"


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobId": 7},
        {"jobId": None},
        {"jobId": ["x"]},
        {"epoch": 2**63},
        {"epoch": -1},
        {"epoch": 1e400},
        {"epoch": "many"},
        {"version": 2**31},
        {"type": ["unhashable"]},
        {"type": 5},
        {"type": "a\0b"},
        {"queue": "a\0b"},
        {"queue": {}},
    ],
)
def test_what_the_database_could_not_take_is_no_wake_up(wrong: dict[str, Any]) -> None:
    assert read(delivery(GOOD | wrong)) is None


@pytest.mark.parametrize("message_id", ["a\0b", "x" * 3000, b"\xff"])
def test_a_message_id_that_the_inbox_could_not_take_is_no_wake_up(message_id: Any) -> None:
    assert read(delivery(GOOD, message_id=message_id)) is None


@pytest.mark.parametrize("body", [[], "text", 7, None, {"type": "filaviva.wakeup.v1"}])
def test_json_of_another_shape_is_no_wake_up(body: Any) -> None:
    sent = delivery(GOOD)
    odd = Delivery(
        **{name: getattr(sent, name) for name in Delivery.__slots__}
        | {"body": json.dumps(body).encode()}
    )

    assert read(odd) is None
