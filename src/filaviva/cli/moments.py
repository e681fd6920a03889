"""Spans of time as a person types them: 30s, 15m, 12h, 7d."""

import re
from datetime import UTC, datetime, timedelta

import typer

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> float:
    """Read a span as seconds."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"found {text!r}, expected a span such as 30s, 15m, 12h or 7d")
    return float(found[1]) * _SECONDS[found[2]]


def moment_after(text: str) -> datetime:
    """Give the time that is so much later than now."""
    try:
        return datetime.now(UTC) + timedelta(seconds=seconds(text))
    except OverflowError:
        raise typer.BadParameter(f"found {text!r}, expected a time before the year 9999") from None
