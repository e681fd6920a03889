"""Times and money as they are shown: RFC 3339 in UTC, decimal strings without an exponent."""

from datetime import UTC, datetime
from decimal import Decimal


def moment(at: datetime | None) -> str | None:
    """Write a time as RFC 3339 in UTC."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def money(amount: Decimal | None) -> str | None:
    """Write an amount in USD as a decimal string."""
    return None if amount is None else f"{amount:f}"
