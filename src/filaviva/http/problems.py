"""Errors as a program and a person can read them: problem+json (RFC 9457), for every status."""

import json
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import asyncpg
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from filaviva.database.transaction import said, transient, unreachable, words
from filaviva.errors import Flaw, Gone, NotFound, Rejected, Unreachable

MEDIA_TYPE: Final = "application/problem+json"
# Whoever sends a million wrong members shall not get them back.
_MOST_FLAWS: Final = 100
_LONGEST: Final = 1000

_CODES = {
    400: "invalid_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    410: "gone",
    413: "body_too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "too_many_requests",
    500: "internal_error",
    503: "unavailable",
}
_DETAILS = {
    404: "there is nothing at this address",
    405: "this address does not know the method; the header Allow names those it knows",
}

# While it connects, SQLAlchemy lets the driver's own errors through.
_ABSENT = (
    Unreachable,
    DBAPIError,
    PoolTimeout,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

log = structlog.get_logger("filaviva")


def problem(  # noqa: PLR0913 - the fields of RFC 9457
    request: Request,
    status: int,
    code: str,
    detail: str,
    *,
    flaws: Sequence[Flaw] = (),
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Say what is wrong; `code` is for programs, `detail` for people, `flaws` say where."""
    body: dict[str, Any] = {
        "type": f"urn:filaviva:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail[:_LONGEST],
        "instance": request.scope.get("raw_path", b"").decode("latin-1"),
        "code": code,
        "requestId": request.scope.get("state", {}).get("request_id"),
    }
    if flaws:
        body["errors"] = [
            {"pointer": flaw.pointer[:_LONGEST], "detail": flaw.detail[:_LONGEST]}
            for flaw in flaws[:_MOST_FLAWS]
        ]
    fields = dict(headers or {})
    if retry_after is not None:
        fields["Retry-After"] = str(max(1, math.ceil(retry_after)))
    if status == HTTPStatus.UNAUTHORIZED:
        fields.setdefault("WWW-Authenticate", 'Bearer realm="filaviva"')
    if status in (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_TIMEOUT):
        # What is left of the body must not be taken for the next request.
        fields["Connection"] = "close"
    # Escaped to ASCII: what a client sent may be quoted here and need not be valid Unicode.
    return Response(json.dumps(body), status, fields, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Turn whatever a route raises into a problem."""
    app.add_exception_handler(Rejected, _rejected)
    app.add_exception_handler(NotFound, _not_found)
    app.add_exception_handler(Gone, _removed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ClientDisconnect, _gone)
    for kind in _ABSENT:
        app.add_exception_handler(kind, _unreachable)
    app.add_exception_handler(Exception, _unexpected)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe these errors for OpenAPI, each with an example."""
    return {status: _documented(status) for status in statuses}


def _documented(status: int) -> dict[str, Any]:
    example = {
        "type": f"urn:filaviva:problem:{_CODES[status]}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": _DETAILS.get(status, HTTPStatus(status).description or "what is wrong"),
        "instance": "/v1/jobs",
        "code": _CODES[status],
        "requestId": "0b1e6a1c0f5c4f0e9f0c6f2c1c7c3c1a",
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": schema, "example": example}},
    }


SCHEMA: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "RFC 9457. `code` is stable; `errors` point into the request's body.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "requestId"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string"},
        "requestId": {"type": ["string", "null"]},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer (RFC 6901)"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}


async def _rejected(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, Rejected)  # noqa: S101 - registered for this class only
    return problem(
        request,
        raised.status,
        raised.code,
        raised.detail,
        flaws=raised.flaws,
        retry_after=raised.retry_after,
    )


async def _not_found(request: Request, raised: Exception) -> Response:
    return problem(request, 404, "not_found", str(raised) or _DETAILS[404])


async def _removed(request: Request, raised: Exception) -> Response:
    return problem(request, 410, "gone", str(raised))


async def _http(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, HTTPException)  # noqa: S101 - registered for this class only
    status = raised.status_code
    phrase = HTTPStatus(status).phrase
    detail = _DETAILS.get(status, raised.detail) if raised.detail == phrase else raised.detail
    code = _CODES.get(status, phrase.lower().replace(" ", "_"))
    return problem(request, status, code, str(detail), headers=raised.headers)


async def _invalid(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, RequestValidationError)  # noqa: S101 - registered for this class only
    flaws = [flaw(error["loc"], error["msg"]) for error in raised.errors()]
    detail = "; ".join(f"{one.pointer or 'body'}: {one.detail}" for one in flaws[:3])
    return problem(request, 422, "invalid_request", detail, flaws=flaws)


def flaw(location: Sequence[str | int], detail: str) -> Flaw:
    """Make a flaw of pydantic's location; what is not in the body keeps its place as a prefix."""
    path = location[1:] if location and location[0] == "body" else location
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return Flaw("".join(f"/{step}" for step in steps), detail)


async def _unreachable(request: Request, raised: Exception) -> Response:
    if not isinstance(raised, Unreachable) and not unreachable(raised):
        return _rivals(request, raised)
    log.warning("unavailable", path=request.url.path, why=words(raised)[:200])
    detail = "the database does not answer; nothing was changed that we know of, try again"
    return problem(request, 503, "unavailable", detail, retry_after=1)


def _rivals(request: Request, raised: Exception) -> Response:
    """Answer whom another request on the same rows kept waiting: what it wanted was undone."""
    if not transient(raised):
        raise raised
    log.warning("overloaded", path=request.url.path, why=said(raised))
    detail = "another request on the same job is at work; nothing was changed, try again"
    return problem(request, 503, "overloaded", detail, retry_after=1)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it


async def _unexpected(request: Request, _: Exception) -> Response:
    # The text of the error may hold data of others: it goes to our log only.
    detail = "something failed on our side; the request's id leads us to it"
    return problem(request, 500, "internal_error", detail)
