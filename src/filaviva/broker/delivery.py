"""A message as the broker delivered it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


# Not frozen, as little as anybody changes it: that would triple what it costs to make one.
@dataclass(slots=True, eq=False)
class Delivery:
    """One delivery, to be settled once; its tag means nothing outside its session."""

    body: bytes
    content_type: str | None
    message_id: str | None
    type: str | None
    correlation_id: str | None
    headers: Mapping[str, Any]
    exchange: str
    routing_key: str
    redelivered: bool
    tag: int
    session: object
    user: str | None = None  # who published it, if it says so: then the broker has checked it
