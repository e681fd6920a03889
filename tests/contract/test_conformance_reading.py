"""Every recorded message is read, or refused, as contracts/conformance/reading.json says."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from filaviva import events
from filaviva.broker.topology import Topology
from filaviva.errors import InvalidInput
from filaviva.events import Event
from filaviva.handler import Handler
from filaviva.policy import Policy
from filaviva.schemas import SchemaCheck
from filaviva_contracts import Envelope, exact
from filaviva_dlq_handler import arrival
from filaviva_dlq_handler.judge import File, Knowledge, judge
from filaviva_worker import event_intake
from fixtures.conformance import CONTRACTS, FOLDER, delivery, recorded

CASES = recorded("reading.json")
CHECKS = {key: SchemaCheck(contract.json_schema()) for key, contract in CONTRACTS.items()}


def versions(kind: str) -> list[int]:
    return [version for known, version in CONTRACTS if known == kind]


def dead(message: dict[str, Any]) -> File:
    """What the dead letter of a message says that a worker refused."""
    known = Knowledge(
        versions=versions,
        flaws=lambda kind, version, data: CHECKS[kind, version].flaws(data),
        readable=lambda *_: False,
    )
    verdict = judge(arrival.read(delivery(message), "dead", Topology()), None, known)
    assert isinstance(verdict, File)
    return verdict


async def nothing(event: Any, context: Any) -> None:
    pass


def verdict(message: dict[str, Any], found: Event | Envelope | None) -> str:
    """Read a message as a worker does, and its refusal as the dlq-handler does."""
    event = events.read(found) if isinstance(found, Envelope) else found
    if event is None or (event.type, event.version) not in CONTRACTS:
        return dead(message).reason
    if isinstance(found, Envelope):
        return "referenced"
    handler = Handler.of(CONTRACTS[event.type, event.version], nothing, "books", Policy())
    try:
        handler.parse(event.data)
    except InvalidInput:
        return "invalid_input"
    return "accepted"


def told(message: dict[str, Any]) -> dict[str, Any]:
    """What of an event the set speaks of."""
    read = delivery(message)
    envelope = Envelope.decode(read.body, read.content_type, read.headers)
    event = events.read(envelope)
    return {
        **({} if envelope.dataref is None else {"dataref": envelope.dataref}),
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "version": event.version,
        "tenant": event.tenant,
        "correlationId": event.correlation_id,
        "traceparent": event.traceparent,
        "subject": envelope.subject,
        "time": envelope.time and envelope.time.astimezone(UTC),
        "data": exact.loads(event.data),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_recorded_message_is_read_or_refused_as_the_set_says(case: dict[str, Any]) -> None:
    message, expected = case["message"], case.get("event")

    found = event_intake.read(delivery(message))

    assert verdict(message, found) == case["verdict"]
    if "because" in case:
        assert dead(message).error["message"].startswith(case["because"])
    if expected is not None:
        moment = expected["time"] and datetime.fromisoformat(expected["time"])
        data = exact.loads(expected["data"])
        assert told(message) == {**expected, "time": moment, "data": data}


def test_the_set_has_every_verdict_and_each_case_a_name_of_its_own() -> None:
    assert {case["verdict"] for case in CASES} == {
        "accepted", "undecodable", "oversize", "unknown_type", "unsupported_version",
        "invalid_input", "referenced",
    }  # fmt: skip
    assert len({case["name"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize(("kind", "version"), CONTRACTS, ids=str)
def test_the_schemas_of_the_set_are_those_of_its_contracts(kind: str, version: int) -> None:
    committed = FOLDER / "schemas" / kind / f"{version}.json"

    assert json.loads(committed.read_text()) == CONTRACTS[kind, version].json_schema()
