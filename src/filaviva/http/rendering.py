"""Values as they look on the wire: exact numbers, RFC 3339 UTC, money as a string."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import simplejson
from simplejson.raw_json import RawJSON
from starlette.responses import Response


class ExactResponse(Response):
    """JSON with every digit as it is stored; `raw(text)` embeds JSON that is text already."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Give the bytes to send."""
        return dumps(content)


def dumps(content: Any) -> bytes:
    """Write JSON with exact decimals."""
    text = simplejson.dumps(
        content, use_decimal=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def raw(text: str | None) -> RawJSON | None:
    """Embed JSON text as it is (as PostgreSQL gave it); None stays null."""
    return None if text is None else RawJSON(text)


def moment(at: datetime | None) -> str | None:
    """Write a time as RFC 3339 in UTC."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def money(amount: Decimal | None) -> str | None:
    """Write an amount in USD as a decimal string, without an exponent."""
    return None if amount is None else f"{amount:f}"
