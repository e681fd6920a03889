"""The Idempotency-Key of a request: what makes a repeated submission the same one."""

import re

from starlette.requests import Request

from filaviva.errors import Rejected

_MOST = 255
# A structured-field string (RFC 8941) has quotes, with \" and \\ inside; bare keys are common.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE = re.compile(r"[!#-~]+")
# What we name items, callbacks and firings by ourselves: who took one first would prevent them.
_OURS = re.compile(r"(?:item|callback|schedule):[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:.*")


def idempotency_key(request: Request) -> str:
    """Give the key of a request, or refuse one without, with several, or with a strange one."""
    found = request.headers.getlist("idempotency-key")
    if not found or not found[0].strip():
        detail = "the header Idempotency-Key is missing: choose one per job, for example a UUID"
        raise Rejected("idempotency_key_missing", detail, status=400)
    if len(found) > 1:
        raise _strange(f"found {len(found)} Idempotency-Key headers, expected one")
    key = _read(found[0].strip())
    if not 1 <= len(key) <= _MOST:
        raise _strange(f"found {len(key)} characters, expected 1 to {_MOST}")
    if _OURS.fullmatch(key):
        raise _strange(f"found {key[:60]!r}, a name of our own making, expected one of yours")
    return key


def _read(header: str) -> str:
    quoted = _QUOTED.fullmatch(header)
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if _BARE.fullmatch(header):
        return header
    raise _strange("expected printable ASCII characters without spaces, or a quoted string")


def _strange(why: str) -> Rejected:
    return Rejected("idempotency_key_invalid", f"Idempotency-Key: {why}", status=400)
