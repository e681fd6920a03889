"""The AsyncAPI document: what may be sent and received, where, and in which shape.

It tells Filaviva's side: `receive` is what others publish or submit, `send` what they listen to.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from filaviva.asyncapi import submissions, ways
from filaviva.asyncapi.schemas import CLOUD_EVENT, HEADERS, entries
from filaviva.asyncapi.told import Told
from filaviva.asyncapi.way import Way
from filaviva.broker.topology import Topology
from filaviva_contracts import CONTENT_TYPE

VERSION: Final = "3.1.0"

_DESCRIPTION: Final = (
    "Messages are CloudEvents 1.0 in structured JSON, persistent, at most 64 KiB; binary mode is "
    "read too. Publish with confirms; where an event names a tenant, with the property `user_id`, "
    "which the broker compares with the connection's user. Delivery is at least once: an event is "
    "named by its source and id, and whoever consumes it keeps both in an inbox of its own. "
    "Readers ignore members that they do not know; publishers send none that the schema does not "
    "have."
)
_BROKER: Final[dict[str, Any]] = {
    "host": "{host}:{port}",
    "protocol": "amqp",
    "protocolVersion": "0.9.1",
    "description": "RabbitMQ 3.10 to 4.3",
    "variables": {"host": {"default": "localhost"}, "port": {"default": "5672"}},
    "security": [{"$ref": "#/components/securitySchemes/brokerUser"}],
}
_PRODUCER: Final[dict[str, Any]] = {
    "host": "{host}:{port}",
    "protocol": "http",
    "description": "The producer: jobs and events over HTTP; /openapi.json says the rest",
    "variables": {"host": {"default": "localhost"}, "port": {"default": "8080"}},
    "security": [{"$ref": "#/components/securitySchemes/apiKey"}],
}
_SECURITY: Final[dict[str, Any]] = {
    "brokerUser": {"type": "userPassword", "description": "a user of the virtual host"},
    "apiKey": {"type": "http", "scheme": "bearer", "bearerFormat": "fv_<id>_<secret>"},
}


def document(
    contracts: Iterable[Told],
    *,
    title: str,
    version: str,
    internal: bool = False,
) -> dict[str, Any]:
    """Describe these contracts; `internal` adds what goes between our own services."""
    topology = Topology()
    known = sorted((one for one in contracts if not one.ours), key=_order)
    jobs = [one for one in known if one.queue is not None and one.event is None]
    several = [*ways.of_events(known, topology), *ways.of_lifecycle(topology)]
    if internal:
        several += ways.between_services(topology)
    return {
        "asyncapi": VERSION,
        "info": {"title": title, "version": version, "description": _DESCRIPTION},
        "defaultContentType": CONTENT_TYPE,
        "servers": {"broker": _BROKER} | ({"producer": _PRODUCER} if jobs else {}),
        "channels": {way.id: way.channel() for way in several} | submissions.channels(jobs),
        "operations": dict(
            chain(*(way.operations() for way in several), submissions.operations(jobs))
        ),
        "components": {
            "messages": dict(_messages(several, jobs)),
            "schemas": dict(_schemas(several, jobs)),
            "securitySchemes": _SECURITY,
        },
    }


def _order(contract: Told) -> tuple[str, int]:
    return contract.type, contract.version


def _messages(several: Sequence[Way], jobs: Sequence[Told]) -> Iterator[tuple[str, Any]]:
    yield from submissions.messages(jobs)
    for way in several:
        yield way.contract.name, way.message()


def _schemas(several: Sequence[Way], jobs: Sequence[Told]) -> Iterator[tuple[str, Any]]:
    yield "CloudEvent", CLOUD_EVENT
    yield "AmqpHeaders", HEADERS
    for contract in [*(way.contract for way in several), *jobs]:
        yield from entries(contract.name, contract.schema)
    for job in jobs:
        if job.result_schema is not None:
            yield from entries(f"{job.name}.result", job.result_schema)
