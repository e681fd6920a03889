"""What a letter's content looks like to somebody who has not asked to see it."""

import base64
import hashlib
from typing import Any

from simplejson.raw_json import RawJSON

from filaviva import canonical

_SHOWN_DEPTH = 6
_SHOWN_ITEMS = 20


def redacted(payload: str, *, reveal: bool = False) -> Any:
    """Give JSON text with its shape kept and every value replaced; as it is when revealed."""
    if reveal:
        return RawJSON(payload)
    return _shape(canonical.parse(payload.encode()), 0)


def _shape(value: Any, depth: int) -> Any:
    match value:
        case dict() if depth < _SHOWN_DEPTH:
            return {key: _shape(inner, depth + 1) for key, inner in value.items()}
        case list() if depth < _SHOWN_DEPTH:
            return [_shape(inner, depth + 1) for inner in value[:_SHOWN_ITEMS]]
        case dict() | list():
            return f"<{len(value)} inside>"
        case str():
            return f"<text of {len(value)} characters>"
        case bool() | None:
            return f"<{'nothing' if value is None else 'true or false'}>"
        case _:
            return "<number>"


def redacted_message(raw: bytes) -> dict[str, Any]:
    """Give what can be said of a message without showing it."""
    return {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}


def revealed_message(raw: bytes) -> dict[str, Any]:
    """Give a message as text where it is text, and as base64 always."""
    shown = {**redacted_message(raw), "base64": base64.b64encode(raw).decode()}
    try:
        return {**shown, "text": raw.decode()}
    except UnicodeDecodeError:
        return {**shown, "text": None}
