"""Attributes of an event that are not ours: kept as JSON has them, so that they go on as they came.

In headers of AMQP they may be what JSON has not: moments, bytes, decimals, not-a-number.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from filaviva_contracts import exact

_OURS = ("data", "data_base64")  # no attributes: in structured mode they would be the event's data


def moment_text(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC; one without a zone is in UTC."""
    known = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return known.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    raise TypeError(f"found a {type(value).__name__}")


# Escaped, so that half of a surrogate pair is seen again when it is read.
_encoder = json.JSONEncoder(ensure_ascii=True, allow_nan=False, default=_plain)


def kept(found: Mapping[str, Any]) -> dict[str, Any]:
    """Give them as JSON has them; Malformed says of which that cannot be."""
    for name in _OURS:
        if name in found:
            raise exact.Malformed(f"the attribute {name!r} is no attribute of an event")
    try:
        text = _encoder.encode(dict(found))
    except (TypeError, ValueError, RecursionError) as wrong:
        raise exact.Malformed(f"an attribute of the event is no JSON: {wrong}") from None
    exact.loads(text)
    plain: dict[str, Any] = json.loads(text)
    return plain
