"""Events of other services: what tells one from another, and what a handler's inbox knows it by.

An event is named by its source and id. It means what its type and data say: a copy may be written
differently, travel another way and come later, and is the same event all the same.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from filaviva import canonical, tenants, tracestate
from filaviva.errors import Rejected
from filaviva_contracts import Envelope, Undecodable, wire_type

LARGEST: Final = 64 * 1024
DEFAULT_TENANT: Final = "default"
# The extension attribute of an event that is not the default tenant's.
TENANT: Final = "tenant"
EVERY: Final = "*"

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_NONE: Final[Mapping[str, Any]] = {}
_LONGEST_KEY = 500  # far below what an index takes
_LONGEST_SHORT = 200  # an AMQP short string has 255 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; `data` is JSON text, `body_hash` tells whether two of one name mean the same."""

    type: str
    version: int
    source: str
    id: str
    tenant: str
    data: str
    body_hash: bytes
    correlation_id: str
    traceparent: str | None = None
    tracestate: str | None = None

    @property
    def key(self) -> str:
        """Give the name under which an inbox knows it."""
        return _within(f"{self.source}|{self.id}", _LONGEST_KEY)

    def consumer(self, queue: str, handler: str) -> str:
        """Name the inbox of one handler; tenants never meet in one."""
        return self._of_tenant(f"event:{queue}:{handler}")

    @property
    def publication(self) -> str:
        """Name the inbox of what was published over HTTP."""
        return self._of_tenant("event:http")

    def _of_tenant(self, consumer: str) -> str:
        return consumer if self.tenant == DEFAULT_TENANT else f"{consumer}:{self.tenant}"


@dataclass(frozen=True, slots=True)
class Publishers:
    """Which tenants the broker's users may name in their events; every user the default one.

    Who says no user may name no other: an event that names one has to be signed by its publisher.
    """

    tenants: Mapping[str, Collection[str]]

    @classmethod
    def trusting(cls, own: str, tenants: Mapping[str, Collection[str]]) -> "Publishers":
        """Trust these users so far, and our own as in what we publish ourselves."""
        return cls({own: (EVERY,), **tenants})

    def may_name(self, user: str | None, tenant: str) -> bool:
        """Tell whether an event of this user may be this tenant's."""
        known = () if user is None else self.tenants.get(user, ())
        return tenant == DEFAULT_TENANT or tenant in known or EVERY in known

    def refusal(self, user: str | None, tenant: str) -> str:
        """Say why not, and what to do."""
        who = "a publisher that says no user" if user is None else f"the broker's user {user!r}"
        return (
            f"{who} may not publish for tenant {tenant!r}: publish with the property user_id, and "
            "list the user's tenants in FILAVIVA_EVENTS__TENANTS"
        )


NOBODY: Final = Publishers({})


def read(envelope: Envelope, *, headers: Mapping[str, Any] = _NONE) -> Event:
    """Read an event as it came over the wire; Undecodable says what is wrong with it.

    `headers` of the message: they tell of its trace where the event itself does not.
    """
    if envelope.contract is None:
        raise Undecodable(f"type: found {envelope.type[:100]!r}, expected one that ends in .vN")
    kind, version = envelope.contract
    own, state = _traceparent(envelope.traceparent), envelope.extensions.get(tracestate.NAME)
    if own is None:
        own, state = _traceparent(headers.get("traceparent")), headers.get(tracestate.NAME)
    return Event(
        type=kind,
        version=version,
        source=envelope.source,
        id=envelope.id,
        tenant=tenant_of(envelope),
        data=envelope.data,
        body_hash=_meaning(wire_type(kind, version), envelope.data),
        correlation_id=_within(envelope.correlationid or envelope.id, _LONGEST_SHORT),
        traceparent=own,
        tracestate=tracestate.beside(own, state),
    )


def tenant_of(envelope: Envelope) -> str:
    """Tell whose event it is."""
    return _tenant(envelope.extensions.get(TENANT, DEFAULT_TENANT))


def message_id(event: Event) -> str:
    """Give the AMQP message id of a copy of an event."""
    return _within(event.id, _LONGEST_SHORT)


def _tenant(found: object) -> str:
    if isinstance(found, str) and tenants.is_tenant(found):
        return found
    raise Undecodable(f"{TENANT}: found {str(found)[:40]!r}, expected {tenants.EXPECTED}")


def _meaning(kind: str, data: str) -> bytes:
    try:
        return canonical.fingerprint({"type": kind, "data": canonical.parse(data)})
    except Rejected as broken:
        raise Undecodable(broken.detail) from None


def _within(text: str, most: int) -> str:
    packed = text.encode()
    return text if len(packed) <= most else hashlib.sha256(packed).hexdigest()


def _traceparent(found: object) -> str | None:
    return found if isinstance(found, str) and _TRACEPARENT.fullmatch(found) else None
