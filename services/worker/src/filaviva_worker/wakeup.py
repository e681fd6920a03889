"""Read a delivery as a wake-up; what is none of ours is left to the dead letters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# As the driver gives them: made, hashed and compared in C, a dozen times for each job.
from asyncpg.pgproto.pgproto import UUID
from pydantic_core import from_json

from filaviva.broker.consumer import Delivery
from filaviva_contracts.envelope import Envelope, Undecodable
from filaviva_contracts.wire import WakeUp as WakeUpContract

# An AMQP short string, and far below what an index takes.
_LONGEST = 255
_GREATEST_EPOCH, _GREATEST_VERSION = 2**63 - 1, 2**31 - 1
_TYPE = f"{WakeUpContract.contract_type}.v{WakeUpContract.contract_version}"


# Not frozen, like all that is made once for each job: that would triple what it costs.
@dataclass(slots=True)
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


def _read_carefully(delivery: Delivery) -> WakeUp | None:
    """Take the slow way for another encoding of the same event (binary mode)."""
    try:
        event = Envelope.decode(delivery.body, delivery.content_type, delivery.headers)
        if event.type != _TYPE:
            return None
        content = WakeUpContract.model_validate_json(event.data).model_dump(by_alias=True)
        return _wake_up(delivery.message_id or event.id, content)
    except (Undecodable, ValueError):
        return None


def _wake_up(message_id: str, content: Mapping[str, Any]) -> WakeUp:
    """Build the wake-up; ValueError for what the database cannot take: it would fail its batch."""
    wake = WakeUp(
        message_id,
        UUID(str(content["jobId"])),
        content["epoch"],
        content["type"],
        content["version"],
        content["queue"],
    )
    texts = (message_id, wake.type, wake.queue)
    if not all(isinstance(text, str) and _fits(text) for text in texts):
        raise ValueError("found a text that no service of ours writes")
    if not (_whole(wake.epoch, _GREATEST_EPOCH) and _whole(wake.version, _GREATEST_VERSION)):
        raise ValueError("found a number that no service of ours writes")
    return wake


def _fits(text: str) -> bool:
    return len(text) <= _LONGEST and "\0" not in text


def _whole(number: object, most: int) -> bool:
    return type(number) is int and 0 <= number <= most
