"""Read a delivery as a wake-up; what is none of ours is left to the dead letters."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from pydantic_core import from_json

from filaviva.broker.consumer import Delivery
from filaviva_contracts.envelope import Envelope, Undecodable
from filaviva_contracts.wire import WakeUp as WakeUpContract

_TYPE = f"{WakeUpContract.contract_type}.v{WakeUpContract.contract_version}"


@dataclass(frozen=True, slots=True)
class WakeUp:
    """A job is due: ids only."""

    message_id: str
    job_id: UUID
    epoch: int
    type: str
    version: int
    queue: str


def read(delivery: Delivery) -> WakeUp | None:
    """Read the wake-up in a delivery; None if it is something else or cannot be read."""
    try:
        event = from_json(delivery.body)
        if event["type"] == _TYPE:
            return _wake_up(delivery.message_id or event["id"], event["data"])
    except (ValueError, KeyError, TypeError):
        pass
    return _read_carefully(delivery)


def _wake_up(message_id: str, content: dict[str, Any]) -> WakeUp:
    return WakeUp(
        message_id,
        UUID(content["jobId"]),
        int(content["epoch"]),
        content["type"],
        int(content["version"]),
        content["queue"],
    )


def _read_carefully(delivery: Delivery) -> WakeUp | None:
    """Take the slow way for another encoding of the same event (binary mode)."""
    try:
        event = Envelope.decode(delivery.body, delivery.content_type, delivery.headers)
        if event.type != _TYPE:
            return None
        content = WakeUpContract.model_validate_json(event.data)
    except (Undecodable, ValidationError):
        return None
    return WakeUp(
        delivery.message_id or event.id,
        content.job_id,
        content.epoch,
        content.type,
        content.version,
        content.queue,
    )
