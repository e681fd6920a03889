"""JSON in and out without a loss: exact numbers, one canonical form, nothing unstorable."""

import hashlib
import json
from decimal import Decimal
from typing import Any, Final

import simplejson

from filaviva.errors import Flaw, Rejected
from filaviva_contracts import exact

_FORM: Final[dict[str, Any]] = {
    "ensure_ascii": False,
    "separators": (",", ":"),
    "allow_nan": False,
}
# The standard library is several times faster, but knows no Decimal.
_fast = json.JSONEncoder(**_FORM)
_exact = simplejson.JSONEncoder(**_FORM, use_decimal=True)
_fast_sorting = json.JSONEncoder(**_FORM, sort_keys=True)
_exact_sorting = simplejson.JSONEncoder(**_FORM, use_decimal=True, sort_keys=True)


def parse(body: bytes | str) -> Any:
    """Parse a request's JSON: fractions come as Decimal; what cannot be stored is Rejected."""
    try:
        return exact.loads(body)
    except exact.Malformed as malformed:
        raise _rejected(malformed) from None


def _rejected(malformed: exact.Malformed) -> Rejected:
    if malformed.pointer is None:
        detail = f"The body cannot be read: {malformed.reason}"
        return Rejected("malformed_json", detail, status=400)
    flaw = Flaw(malformed.pointer, malformed.reason)
    return Rejected("invalid_data", "The body cannot be stored", status=422, flaws=[flaw])


def dumps(value: Any) -> str:
    """Write JSON text in which every number is what it was."""
    try:
        return _fast.encode(value)
    except TypeError:
        return str(_exact.encode(value))


def fingerprint(value: Any) -> bytes:
    """Hash what a value means: neither the order of members nor 1.0 for 1 makes a difference."""
    plain = _plain(value)
    try:
        text = _fast_sorting.encode(plain)
    except TypeError:
        text = _exact_sorting.encode(plain)
    return hashlib.sha256(text.encode()).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else _shortest(value)
    return value


def _shortest(value: Decimal) -> Decimal:
    # Decimal.normalize() would round to the precision of the thread's context.
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    bare = text.rstrip("0")
    return Decimal((sign, tuple(map(int, bare)), int(exponent) + len(text) - len(bare)))


def storable(text: str, limit: int = 2000) -> str:
    """Make a text fit for the database: no NUL, no half surrogates, not longer than the limit."""
    clean = text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
