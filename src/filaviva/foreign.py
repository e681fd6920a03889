"""Recognise the exceptions of libraries that we do not import, by what they are called and carry.

Classes are looked up by name in the exception's ancestry; an HTTP status where the usual clients
(httpx, requests, openai, anthropic, aiohttp, urllib, botocore) keep it.
"""

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from filaviva.outcome import ErrorClass

T = TypeVar("T")

_NAMES: tuple[tuple[ErrorClass, frozenset[str]], ...] = (
    (
        "timeout",
        frozenset(
            {
                "TimeoutError",  # builtin, asyncio, socket, concurrent.futures, SQLAlchemy's pool
                "TimeoutException",  # httpx
                "Timeout",  # requests
                "APITimeoutError",  # openai, anthropic
                "ConnectTimeoutError",  # botocore, urllib3
                "ReadTimeoutError",  # botocore, urllib3
                "DeadlineExceeded",  # google
            }
        ),
    ),
    (
        "refused",
        frozenset({"ContentFilterFinishReasonError"}),  # openai
    ),
    (
        "invalid_output",
        frozenset({"LengthFinishReasonError"}),  # openai
    ),
    (
        "connection",
        frozenset(
            {
                "ConnectionError",  # builtin, requests, botocore
                "gaierror",
                "SSLError",
                "URLError",  # urllib
                "NetworkError",  # httpx
                "ProxyError",  # httpx
                "RemoteProtocolError",  # httpx
                "APIConnectionError",  # openai, anthropic
                "ClientConnectionError",  # aiohttp
                "ClientPayloadError",  # aiohttp
                "HTTPClientError",  # botocore
                "IncompleteRead",  # http.client
                "ProtocolError",  # urllib3
                "NewConnectionError",  # urllib3
                "ConnectionClosed",  # websockets
                "PostgresConnectionError",  # asyncpg
                "ConnectionDoesNotExistError",  # asyncpg
                "CannotConnectNowError",  # asyncpg: the server starts or stops
                "AdminShutdownError",  # asyncpg
                "Unreachable",  # ours
                "NotPublished",  # ours
            }
        ),
    ),
)
_NETWORK = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EADDRNOTAVAIL,
    }
)
# A later request may find the other side in another state: it timed out waiting (408), was busy
# with the same thing (409, 423), or was asked too early (425). The providers' own libraries repeat
# these too.
_TRANSIENT: Mapping[int, ErrorClass] = {
    408: "timeout",
    409: "upstream",
    423: "upstream",
    425: "upstream",
    429: "rate_limited",
}
# Understood, and declined for who asks or for what is asked.
_DECLINED = frozenset({401, 402, 403, 407, 451})
RETRIED: frozenset[ErrorClass] = frozenset({"timeout", "connection", "rate_limited", "upstream"})


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a foreign exception says about itself."""

    error_class: ErrorClass
    headers: Mapping[str, Any] = field(default_factory=dict)


def recognise(error: BaseException) -> Recognised | None:
    """Give the class of a foreign exception; None if it is not known."""
    answer = _attribute(error, "response")
    status = _status(error, answer)
    if status is not None:
        return Recognised(_of_status(status), _headers(error, answer))
    return _of_kind(error)


def _of_status(status: int) -> ErrorClass:
    if status >= 500:  # noqa: PLR2004 - HTTP's server errors
        return "upstream"
    if status in _DECLINED:
        return "refused"
    return _TRANSIENT.get(status, "terminal")


def _of_kind(error: BaseException) -> Recognised | None:
    names = {ancestor.__name__ for ancestor in type(error).__mro__}
    for error_class, known in _NAMES:
        if names & known:
            return Recognised(error_class)
    if isinstance(error, OSError) and error.errno in _NETWORK:
        return Recognised("connection")
    if _attribute(error, "connection_invalidated") is True:  # SQLAlchemy
        return Recognised("connection")
    return None


def _status(error: BaseException, answer: Any) -> int | None:
    for owner, name in (
        (error, "status_code"),
        (answer, "status_code"),
        (error, "status"),
        (answer, "status"),
    ):
        if (status := _http_error(_attribute(owner, name))) is not None:
            return status
    metadata = _member(answer, "ResponseMetadata")  # botocore
    return _http_error(_member(metadata, "HTTPStatusCode"))


def _http_error(found: Any) -> int | None:
    whole = isinstance(found, int) and not isinstance(found, bool)
    return int(found) if whole and 400 <= found <= 599 else None  # noqa: PLR2004 - HTTP's errors


def _headers(error: BaseException, answer: Any) -> Mapping[str, Any]:
    metadata = _member(answer, "ResponseMetadata")
    for found in (
        _attribute(answer, "headers"),
        _attribute(error, "headers"),
        _member(metadata, "HTTPHeaders"),
    ):
        items = _attribute(found, "items")
        if callable(items):
            return ask(lambda items=items: dict(items()), {})  # type: ignore[misc]
    return {}


def _member(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, dict) else None


def _attribute(owner: Any, name: str) -> Any:
    return None if owner is None else ask(lambda: getattr(owner, name, None), None)


def ask(question: Callable[[], T], otherwise: T) -> T:
    """Ask a foreign object something: whatever it raises, classifying must go on."""
    try:
        return question()
    except Exception:  # noqa: BLE001 - the border to code that is not ours
        return otherwise
