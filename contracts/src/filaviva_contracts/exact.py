"""Read JSON without losing anything, and refuse what cannot be stored as it came."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Never

MAX_DEPTH = 100
# PostgreSQL writes 1e1000 out in full: a few bytes of input must not become megabytes of text.
MAX_EXPONENT = 1000
_SURROGATE = re.compile("[\ud800-\udfff]")


class Malformed(ValueError):
    """The text is no JSON document that could be kept; `pointer` says where, if that is known."""

    def __init__(self, reason: str, *, pointer: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pointer = pointer


def loads(body: bytes | str) -> Any:
    """Parse JSON: numbers with a fraction become Decimal, and no value is dropped or guessed."""
    text = body if isinstance(body, str) else _decoded(body)
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError as broken:
        reason = f"{broken.msg.lower()} at line {broken.lineno}, column {broken.colno}"
        raise Malformed(f"it is not JSON: {reason}") from None
    except RecursionError:
        raise Malformed(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except Malformed:
        raise
    except ValueError:  # from int(), which refuses thousands of digits
        raise Malformed("it has a number with thousands of digits") from None
    _check(text, value)
    return value


def _decoded(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as wrong:
        raise Malformed(f"it is not UTF-8 (byte {wrong.start})") from None


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("inf")
    least = number.as_tuple().exponent  # a letter for infinity
    if isinstance(least, str) or max(abs(number.adjusted()), abs(least)) > MAX_EXPONENT:
        raise Malformed(f"the number {text[:40]} has more than {MAX_EXPONENT} digits")
    return number


def _refuse_constant(text: str) -> Never:
    raise Malformed(f"{text} is not JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        # Counted, not looked for: with a million members that would take hours.
        ((twin, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise Malformed(f"the member {twin[:100]!r} appears twice")
    return members


_decoder = json.JSONDecoder(
    parse_float=_number, parse_constant=_refuse_constant, object_pairs_hook=_members
)


def _check(text: str, value: Any) -> None:
    # In UTF-8 text a NUL or a lone surrogate can only come from an escape.
    escaped = "\\u" in text
    if escaped or text.count("[") + text.count("{") > MAX_DEPTH:
        for pointer, found in strings(value):
            flaw = unstorable(found)
            if flaw:
                raise Malformed(flaw, pointer=pointer)


def unstorable(text: str) -> str | None:
    """Say why a string cannot be stored; None if it can."""
    if "\x00" in text:
        return "it contains a NUL character"
    if _SURROGATE.search(text):
        return "it contains half of a surrogate pair"
    return None


def strings(value: Any, pointer: str = "", depth: int = 1) -> Iterator[tuple[str, str]]:
    """Walk every string of a value, member names too, with its JSON pointer."""
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, dict | list):
        if depth > MAX_DEPTH:
            raise Malformed(f"it is nested deeper than {MAX_DEPTH} levels")
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in members:
            inside = f"{pointer}/{escaped(name)}"
            if isinstance(name, str):
                yield inside, name
            yield from strings(inner, inside, depth + 1)


def escaped(part: str | int) -> str:
    """Write one part of a JSON pointer."""
    return str(part).replace("~", "~0").replace("/", "~1")
