"""What arrived in the dead letters: read without trusting anything in it."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from pydantic import ValidationError

from filaviva import events
from filaviva.broker.topology import Topology
from filaviva.canonical import storable
from filaviva.events import Event
from filaviva.operations.dead_letters import Origin
from filaviva_contracts.envelope import Envelope, Undecodable
from filaviva_contracts.names import wire_type
from filaviva_contracts.wire import JobDead, WakeUp

LARGEST_ENVELOPE = events.LARGEST
_LARGEST_HEADERS = 16 * 1024
_DEEPEST = 4

_DEAD = wire_type(JobDead.contract_type, JobDead.contract_version)
_WAKE_UP = wire_type(WakeUp.contract_type, WakeUp.contract_version)


class Message(Protocol):
    """What is read of a delivery."""

    @property
    def body(self) -> bytes: ...
    @property
    def content_type(self) -> str | None: ...
    @property
    def message_id(self) -> str | None: ...
    @property
    def headers(self) -> Mapping[str, Any]: ...
    @property
    def exchange(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def user(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class DeadJob:
    """Our own message: a job has failed."""

    job_id: UUID
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeadWakeUp:
    """A wake-up that no worker took."""

    job_id: UUID
    epoch: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """A message that is no job of ours (yet)."""

    type: str
    version: int | None
    data: str
    event: Event | None = None
    dataref: str | None = None  # then the event's content lies there, and is not in it


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes that nobody here can read, or too many of them."""

    reason: str
    why: str


Content: TypeAlias = DeadJob | DeadWakeUp | Foreign | Unreadable


@dataclass(frozen=True, slots=True)
class Death:
    """The broker's record of the last queue that gave the message up."""

    queue: str | None = None
    reason: str | None = None
    exchange: str | None = None
    routing_key: str | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message with where it comes from; `key` is None if it has no id to tell it by."""

    content: Content
    origin: Origin
    death: Death
    unroutable: bool
    key: str | None
    body_hash: bytes
    user: str | None = None  # of the broker, who published it
    hop: str | None = None  # the traceparent of its publishing
    queue: str = ""


def read(message: Message, queue: str, topology: Topology) -> Arrival:
    """Read a message that came from this queue; never fails, whatever is in it."""
    unroutable = queue == topology.unroutable
    death = Death() if unroutable else _death(message.headers)
    content = _content(message)
    ours = isinstance(content, DeadJob | DeadWakeUp)
    origin = Origin(
        message_id=_text(message.message_id),
        source_queue=_text(death.queue),
        exchange=_text(death.exchange or message.exchange),
        routing_key=_text(death.routing_key or message.routing_key),
        content_type=_text(message.content_type),
        headers=storable_headers(message.headers),
        raw=message.body,
    )
    id_ = message.message_id
    key = storable(f"{id_}|{death.queue or queue}", 1000) if id_ else None
    # A second copy of our own message may be written differently and mean the same.
    digest = b"" if ours else hashlib.sha256(message.body).digest()
    return Arrival(
        content,
        origin,
        death,
        unroutable,
        key,
        digest,
        message.user,
        _text(message.headers.get("traceparent")),
        queue,
    )


def _content(message: Message) -> Content:
    if len(message.body) > LARGEST_ENVELOPE:
        found = f"found a message of {len(message.body)} bytes, expected {LARGEST_ENVELOPE} at most"
        return Unreadable("oversize", found)
    try:
        envelope = Envelope.decode(message.body, message.content_type, message.headers)
    except Undecodable as broken:
        return Unreadable("undecodable", broken.reason)
    try:
        return _ours(envelope) or _foreign(envelope)
    except Undecodable as broken:
        return Unreadable("undecodable", broken.reason)
    except ValidationError as invalid:
        flaws = invalid.errors(include_url=False, include_input=False)
        why = f"{envelope.type}: {flaws[0]['msg']} at {'.'.join(map(str, flaws[0]['loc']))}"
        return Unreadable("undecodable", why)


def _ours(envelope: Envelope) -> Content | None:
    if envelope.type == _DEAD:
        dead = JobDead.model_validate_json(envelope.data)
        return DeadJob(dead.job_id, dead.epoch, dead.reason)
    if envelope.type == _WAKE_UP:
        wanted = WakeUp.model_validate_json(envelope.data)
        return DeadWakeUp(wanted.job_id, wanted.epoch)
    return None


def _foreign(envelope: Envelope) -> Foreign:
    if envelope.contract is None:
        return Foreign(storable(envelope.type, 200), None, envelope.data)
    type_, version = envelope.contract
    dataref = _text(envelope.dataref)
    return Foreign(storable(type_, 200), version, envelope.data, events.read(envelope), dataref)


def _death(headers: Mapping[str, Any]) -> Death:
    # The newest entry comes first; x-last-death-* exists from RabbitMQ 3.13 only.
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    if not isinstance(newest, Mapping):
        return Death()
    keys = newest.get("routing-keys")
    return Death(
        queue=_text(newest.get("queue")),
        reason=_text(newest.get("reason")),
        exchange=_text(newest.get("exchange")),
        routing_key=_text(keys[0]) if isinstance(keys, list) and keys else None,
    )


def _text(value: object) -> str | None:
    if value is None:
        return None
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return storable(text, 500)


def storable_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Turn AMQP headers into JSON that PostgreSQL takes; too many become a note."""
    shown = {str(_text(name)): _plain(value, 1) for name, value in headers.items()}
    if len(json.dumps(shown)) > _LARGEST_HEADERS:
        return {"dropped": f"more than {_LARGEST_HEADERS} bytes of headers"}
    return shown


def _plain(value: object, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case int() if abs(value) < 2**63:
            return value
        case float() if math.isfinite(value):
            return value
        case Mapping() if depth < _DEEPEST:
            return {str(_text(name)): _plain(inner, depth + 1) for name, inner in value.items()}
        case list() | tuple() if depth < _DEEPEST:
            return [_plain(inner, depth + 1) for inner in value]
        case _:
            return _text(value)
