"""Where messages go, named as the conventions for RabbitMQ say.

The bits that a pause is written in would make as many names as there are pauses: they are left out.
"""

import re
from functools import lru_cache
from typing import Any, Final

from filaviva.tracing import names

_PAUSE: Final = re.compile(r"(?:[01]\.){8,}")


def sent(exchange: str, routing_key: str) -> str:
    """Name where a message is published to."""
    return ":".join(part for part in (exchange, _bare(routing_key)) if part) or "amq.default"


def received(exchange: str, routing_key: str, queue: str) -> str:
    """Name where a message was received from."""
    bare = _bare(routing_key)
    return ":".join(part for part in (exchange, "" if bare == queue else bare, queue) if part)


def attributes(operation: str, kind: str, destination: str, routing_key: str) -> dict[str, Any]:
    """Give what every span of messaging says."""
    said = {
        names.SYSTEM: names.RABBITMQ,
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: kind,
        names.DESTINATION: destination,
    }
    if routing_key:
        said[names.ROUTING_KEY] = routing_key
    return said


@lru_cache(maxsize=4096)
def _bare(routing_key: str) -> str:
    return _PAUSE.sub("*.", routing_key, count=1)
