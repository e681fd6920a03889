"""Read how long the other side asks us to wait, in every form it says so."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

# The horizon of the delay cascade: who asks for more means "never".
_LONGEST = 310 * 86_400.0


def retry_after(headers: Mapping[str, Any], *, now: datetime) -> float | None:
    """Give the seconds of a Retry-After header; a date counts from the answer's own Date."""
    lower = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    exact = seconds(lower.get("retry-after-ms"))  # OpenAI's, more exact than the standard one
    if exact is not None:
        return exact / 1000
    asked = lower.get("retry-after")
    plain = seconds(asked)
    return _until(asked, lower.get("date"), now) if plain is None else plain


def seconds(value: object) -> float | None:
    """Read a number of seconds; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return min(max(number, 0.0), _LONGEST) if math.isfinite(number) else None


def _until(asked: str | None, sent: str | None, now: datetime) -> float | None:
    moment = _date(asked)
    if moment is None:
        return None
    # Their clock against their clock: the difference is right even where ours is wrong.
    return seconds((moment - (_date(sent) or now)).total_seconds())


def _date(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
