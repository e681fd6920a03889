"""Read what arrives on the queue of failed attempts."""

from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from pydantic import ValidationError

from filaviva.broker.consumer import Delivery
from filaviva_contracts.envelope import Envelope, Undecodable
from filaviva_contracts.wire import AttemptFailed

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Request:
    """An attempt has failed: decide what becomes of its job."""

    delivery: Delivery
    message_id: str | None
    job_id: UUID
    fence: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Not from a worker of ours, or broken: somebody has to look at it."""

    delivery: Delivery
    why: str


Arrival: TypeAlias = Request | Unreadable


def read(delivery: Delivery) -> Arrival:
    """Read one delivery; what cannot be one of ours is Unreadable, never an exception."""
    try:
        envelope = Envelope.decode(delivery.body, delivery.content_type, delivery.headers)
        if envelope.contract != (AttemptFailed.contract_type, AttemptFailed.contract_version):
            return Unreadable(delivery, f"found type {envelope.type!r}, expected a failed attempt")
        failed = AttemptFailed.model_validate_json(envelope.data)
    except (Undecodable, ValidationError) as broken:
        return Unreadable(delivery, str(broken))
    # Neither can be sent to the database, and each would fail its whole batch.
    if not 0 <= failed.fence <= _LARGEST or "\0" in (delivery.message_id or ""):
        return Unreadable(delivery, "a value that no worker writes")
    return Request(delivery, delivery.message_id, failed.job_id, failed.fence)
