"""Read back what is on the broker: it accepts many arguments silently and without effect."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx2

from filaviva.broker.topology import Binding, Declarations, Exchange, Queue
from filaviva.errors import ConfigurationError, Unreachable

# Policy keys that would change how our queues behave; the queue's own arguments say nothing of it.
_POLICY_KEYS = frozenset(
    {
        "alternate-exchange",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "delivery-limit",
        "expires",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
    }
)


NOTHING: Final = "nothing"
_REFUSALS: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference between what should be on the broker and what is."""

    kind: str
    name: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: found {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class Present:
    """What the management API says is there, as it says it."""

    exchanges: Mapping[str, Mapping[str, Any]]
    queues: Mapping[str, Mapping[str, Any]]
    bindings: frozenset[Binding]


async def verify(management_url: str, vhost: str, declarations: Declarations) -> list[Drift]:
    """Compare the broker with the declarations; an empty list means that it is as it should be."""
    return compare(await read_back(management_url, vhost), declarations)


async def read_back(management_url: str, vhost: str) -> Present:
    """Read a virtual host's exchanges, queues and bindings from the management API."""
    parts = urlsplit(management_url)
    origin = f"{parts.scheme}://{parts.hostname}:{parts.port or 15672}"
    login = (parts.username or "", parts.password or "")
    where = quote(vhost, safe="")
    try:
        async with httpx2.AsyncClient(base_url=origin, auth=login, timeout=20) as client:
            lists = [
                (await client.get(f"/api/{kind}/{where}")).raise_for_status().json()
                for kind in ("exchanges", "queues", "bindings")
            ]
    except httpx2.HTTPStatusError as refused:
        if refused.response.status_code in _REFUSALS:
            raise ConfigurationError(
                f"FILAVIVA_BROKER__MANAGEMENT_URL: the management API at {origin} refuses "
                f"({refused.response.status_code}), expected a user with the tag monitoring"
            ) from refused
        raise Unreachable(f"the broker's management API at {origin}: {refused}") from refused
    except httpx2.HTTPError as failed:
        raise Unreachable(f"the broker's management API at {origin}: {failed}") from failed
    exchanges, queues, bindings = lists
    return Present(
        exchanges={exchange["name"]: exchange for exchange in exchanges},
        queues={queue["name"]: queue for queue in queues},
        bindings=frozenset(_binding(binding) for binding in bindings),
    )


def compare(present: Present, declarations: Declarations) -> list[Drift]:
    """List the differences."""
    return [
        *_exchange_drift(present, declarations.exchanges),
        *_queue_drift(present, declarations.queues),
        *(
            Drift("binding", f"{wanted.source} -> {wanted.destination}", NOTHING, key)
            for wanted in declarations.bindings
            if wanted not in present.bindings
            for key in [repr(wanted.routing_key)]
        ),
        *(
            Drift("binding", f"{found.source} -> {found.destination}", key, NOTHING)
            for found in stale(present, declarations)
            for key in [repr(found.routing_key)]
        ),
    ]


def stale(present: Present, declarations: Declarations) -> list[Binding]:
    """Find what leads from our exchanges to our queues though nobody asks for it any more."""
    exchanges = {exchange.name for exchange in declarations.exchanges}
    queues = {queue.name for queue in declarations.queues}
    more = present.bindings - set(declarations.bindings)
    ours = [each for each in more if each.source in exchanges and each.destination in queues]
    return sorted(ours, key=str)


def _exchange_drift(present: Present, wanted: Iterable[Exchange]) -> Iterable[Drift]:
    for exchange in wanted:
        found = present.exchanges.get(exchange.name)
        if found is None:
            yield Drift("exchange", exchange.name, NOTHING, f"a {exchange.kind} exchange")
            continue
        if found["type"] != exchange.kind:
            yield Drift("exchange", exchange.name, f"type {found['type']}", exchange.kind)
        yield from _differences("exchange", found, exchange.name, exchange.arguments)


def _queue_drift(present: Present, wanted: Iterable[Queue]) -> Iterable[Drift]:
    for queue in wanted:
        found = present.queues.get(queue.name)
        if found is None:
            yield Drift("queue", queue.name, NOTHING, "a quorum queue")
            continue
        yield from _differences("queue", found, queue.name, queue.arguments)


def _differences(
    kind: str, found: Mapping[str, Any], name: str, arguments: Mapping[str, Any]
) -> Iterable[Drift]:
    actual = found.get("arguments") or {}
    for key in sorted({*actual, *arguments}):
        if actual.get(key) != arguments.get(key):
            yield Drift(kind, name, f"{key} = {actual.get(key)!r}", repr(arguments.get(key)))
    policies = found.get("effective_policy_definition") or {}
    for key in sorted(_POLICY_KEYS & set(policies)):
        if policies[key] != arguments.get(f"x-{key}"):
            yield Drift(kind, name, f"a policy with {key} = {policies[key]!r}", "no such policy")


def _binding(found: Mapping[str, Any]) -> Binding:
    return Binding(
        found["source"], found["destination"], found["routing_key"], found["destination_type"]
    )
