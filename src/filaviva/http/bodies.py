"""Read a request's body: as much as is allowed, only JSON, exactly as it was written."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from filaviva import canonical
from filaviva.errors import Rejected

_MIB = 1024 * 1024
_MOST_FLAWS = 100
_LARGE = 256 * 1024
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How much is accepted, how much more is read only to be thrown away, and for how long."""

    accepted: int = 16 * _MIB
    thrown_away: int = 64 * _MIB
    seconds: float = 60


async def read_body(request: Request) -> bytes:
    """Give the whole body, or refuse it (413) after having read it.

    Closing early would reset the connection under a client that is still sending, which then
    never sees our answer.
    """
    limits: BodyLimits = request.app.state.body_limits
    _refuse_announced(request, limits)
    try:
        async with asyncio.timeout(limits.seconds):
            return await _read(request.stream(), limits)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.seconds:g} s"
        raise Rejected("too_slow", detail, status=408) from None


async def _read(chunks: AsyncIterator[bytes], limits: BodyLimits) -> bytes:
    body = bytearray()
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size <= limits.accepted:
            body += chunk
        elif size > limits.thrown_away:
            break
        else:
            body.clear()
    if size > limits.accepted:
        raise _too_large(limits.accepted)
    return bytes(body)


def _refuse_announced(request: Request, limits: BodyLimits) -> None:
    # A client that asks first (Expect: 100-continue) has not sent anything yet.
    size = request.headers.get("content-length", "")
    if not size.isdecimal() or int(size) <= limits.accepted:
        return
    if request.headers.get("expect", "").lower() == "100-continue":
        raise _too_large(limits.accepted)


def _too_large(most: int) -> Rejected:
    detail = f"the body is larger than {most} bytes"
    return Rejected("body_too_large", detail, status=413)


async def read_json(request: Request) -> Any:
    """Give the body as JSON with exact numbers; 415 for another content type, 400 if broken."""
    return await parsed(request, await read_body(request))  # read in any case: see there


async def parsed(request: Request, body: bytes) -> Any:
    """Parse what was read; megabytes take seconds, for which nobody else's request waits."""
    return await beside(lambda: _parsed(request, body), large=is_large(body))


def is_large(body: bytes) -> bool:
    """Tell whether work on so much is done beside the event loop."""
    return len(body) > _LARGE


async def beside(work: Callable[[], T], *, large: bool) -> T:
    """Do this work, in a thread if it is large."""
    return await asyncio.to_thread(work) if large else work()


def _parsed(request: Request, body: bytes) -> Any:
    wrong = _wrong_type(request)
    if wrong is not None:
        raise Rejected("unsupported_media_type", wrong, status=415)
    return canonical.parse(body)


def _wrong_type(request: Request) -> str | None:
    found = request.headers.get("content-type", "")
    kind, _, parameters = found.lower().partition(";")
    name, _, value = parameters.strip().partition("=")
    charset = value.strip('" ') if name.strip() == "charset" else "utf-8"
    if kind.strip() != "application/json" or charset not in ("utf-8", "utf8", "us-ascii"):
        return f"found content type {found or 'none'!r}, expected application/json in UTF-8"
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        return f"found content encoding {encoding!r}, expected none"
    return None


def json_body(model: type[M], *, most: int | None = None) -> Callable[[Request], Awaitable[M]]:
    """Make the dependency that reads a body of this shape (strict JSON, then pydantic)."""

    async def body(request: Request) -> M:
        content = await read_body(request)
        if most is not None and len(content) > most:
            raise _too_large(most)
        return _shaped(model, await parsed(request, content))

    return body


def optional_json_body(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """Make the dependency that reads such a body where there is one; none says nothing."""

    async def body(request: Request) -> M:
        content = await read_body(request)
        return _shaped(model, await parsed(request, content) if content else {})

    return body


def _shaped(model: type[M], value: Any) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        found = invalid.errors(include_url=False, include_context=False, include_input=False)
        errors = [{**error, "loc": ("body", *error["loc"])} for error in found[:_MOST_FLAWS]]
        raise RequestValidationError(errors) from None
