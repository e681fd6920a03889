"""Keyset pages: an opaque cursor that belongs to its filters."""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping

from filaviva.errors import Flaw, Rejected

_SEAL = 6


def cursor(last: str, filters: Mapping[str, object]) -> str:
    """Make the cursor of the page that follows the row `last` under these filters."""
    sealed = _seal(filters) + last.encode()
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def after(found: str | None, filters: Mapping[str, object], *, form: re.Pattern[str]) -> str | None:
    """Read a cursor back; one that is broken or made for other filters is refused."""
    if found is None:
        return None
    try:
        sealed = base64.b64decode(found.encode() + b"=" * (-len(found) % 4), b"-_", validate=True)
        last = sealed[_SEAL:].decode()
    except (binascii.Error, UnicodeError):
        last = ""
    if not form.fullmatch(last):
        raise _refused("found a cursor that is none of ours")
    if sealed[:_SEAL] != _seal(filters):
        raise _refused("found a cursor of another list, expected the same filters as before")
    return last


def _seal(filters: Mapping[str, object]) -> bytes:
    # No secret: a forged cursor opens nothing, since every query is bound to the tenant anyway.
    return hashlib.sha256(repr(sorted(filters.items())).encode()).digest()[:_SEAL]


def _refused(detail: str) -> Rejected:
    return Rejected("invalid_cursor", detail, status=422, flaws=[Flaw("/query/cursor", detail)])
