"""What we give to the broker, and what may become of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message on its way to an exchange: persistent, with its properties."""

    exchange: str
    routing_key: str
    body: bytes
    message_id: str
    type: str | None = None
    content_type: str = "application/cloudevents+json"
    correlation_id: str | None = None
    timestamp: datetime | None = None
    priority: int | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    mandatory: bool = True
    signed: bool = False  # it says which of the broker's users publishes it
    follows: str | None = None  # the traceparent of what it is a part of, if that is traced


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has routed the message and keeps it."""


@dataclass(frozen=True, slots=True)
class Unroutable:
    """No queue is bound for it: the message is still ours."""

    why: str


@dataclass(frozen=True, slots=True)
class Offending:
    """The broker or the protocol does not take this message (too large): it is still ours."""

    why: str


@dataclass(frozen=True, slots=True)
class NotReady:
    """The exchange is missing, closed to us, or its queue is full: the message is still ours."""

    why: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not confirmed in time: the message is still ours, though the broker may have it too."""

    why: str


Published: TypeAlias = Confirmed | Unroutable | Offending | NotReady | Unknown

CONFIRMED = Confirmed()
