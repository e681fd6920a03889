"""Connect to RabbitMQ, and tell what its client library raises apart."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import aiormq
from aiormq.abc import AbstractConnection as Connection
from aiormq.channel import Channel
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    InvalidFrameError,
    ProbableAuthenticationError,
)

from filaviva.errors import NotAdmitted, Unreachable

__all__ = [
    "ACCESS_REFUSED",
    "LOST",
    "NOT_FOUND",
    "PRECONDITION_FAILED",
    "Backoff",
    "Channel",
    "Closure",
    "Connection",
    "Declined",
    "client_errors",
    "close",
    "closure",
    "connect",
    "open_channel",
]

_PATIENCE_SECONDS = 10.0
_HEARTBEAT_SECONDS = "10"

ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, LOST = 403, 404, 406, 0
_CODES: dict[type[AMQPError], int] = {
    ChannelAccessRefused: ACCESS_REFUSED,
    ChannelNotFoundEntity: NOT_FOUND,
    ChannelPreconditionFailed: PRECONDITION_FAILED,
}


@dataclass(frozen=True, slots=True)
class Closure:
    """Why a channel is closed: AMQP's reply code (0: lost with its connection) and text."""

    code: int
    why: str

    @classmethod
    def of(cls, error: BaseException | None) -> "Closure":
        """Read an exception of the client library."""
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), LOST)
        return cls(code, _explain(error))


class Declined(Unreachable):
    """The broker closed the channel because of what we asked for."""

    def __init__(self, closure: Closure) -> None:
        super().__init__(f"the broker: {closure.why}")
        self.closure = closure


async def connect(url: str, *, name: str) -> Connection:
    """Open a connection that does not repair itself; `name` is what the broker's console shows."""
    with client_errors():
        async with asyncio.timeout(_PATIENCE_SECONDS):
            try:
                return await aiormq.connect(
                    _with_heartbeat(url), client_properties={"connection_name": name}
                )
            except InvalidFrameError as closed:  # the library's words for a Close before OpenOk
                raise NotAdmitted(_locked_out(url)) from closed
            except ProbableAuthenticationError as refused:
                who = user_of(url)
                raise NotAdmitted(
                    f"the broker refuses user {who!r}: {_explain(refused)}"
                ) from refused


async def open_channel(connection: Connection, *, confirms: bool) -> Channel:
    """Open a channel; with `confirms` the broker confirms every publish."""
    with client_errors():
        async with asyncio.timeout(_PATIENCE_SECONDS):
            channel = await connection.channel(publisher_confirms=confirms)
    if not isinstance(channel, Channel):
        raise TypeError(f"found {type(channel).__name__}, expected aiormq's Channel")
    return channel


async def close(resource: Connection | Channel) -> None:
    """Close a connection or a channel; give up politeness when the broker does not answer."""
    with suppress(Unreachable), client_errors():
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await resource.close()


def closure(channel: Channel) -> Closure:
    """Say why a closed channel is closed."""
    closing = channel.closing
    if not closing.done() or closing.cancelled():
        return Closure(LOST, "closed")
    return Closure.of(closing.exception())


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn what the client library raises for a lost broker into Unreachable.

    A lost connection cancels what waits for it: that is told from our own cancel by the task.
    """
    try:
        yield
    except asyncio.CancelledError as canceled:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Unreachable("the connection to the broker was lost") from canceled
    except TimeoutError as silent:
        raise Unreachable("the broker does not answer") from silent
    except (AMQPError, OSError, RuntimeError, asyncio.QueueFull) as broken:
        reason = Closure.of(broken)
        if reason.code == LOST:
            raise Unreachable(f"the broker: {reason.why}") from broken
        raise Declined(reason) from broken


class Backoff:
    """Jittered pauses between tries: replicas must not come back in step.

    The longest is short, because it is what work waits for once the broker is back.
    """

    def __init__(self, *, first: float = 0.5, most: float = 5.0) -> None:
        self._first = first
        self._most = most
        self._limit = first

    def next(self) -> float:
        """Give the next pause in seconds."""
        pause = random.uniform(self._limit / 2, self._limit)  # noqa: S311 - not a secret
        self._limit = min(self._limit * 2, self._most)
        return pause

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._limit = self._first


def _explain(error: BaseException | None) -> str:
    if error is None:
        return "closed"
    return ", ".join(str(argument) for argument in error.args) or type(error).__name__


def user_of(url: str) -> str:
    """Give the user in a URL: who it is to the broker."""
    return unquote(urlsplit(url).username or "guest")


def _locked_out(url: str) -> str:
    vhost = unquote(urlsplit(url).path[1:]) or "/"
    return (
        f"the broker: it did not open the virtual host {vhost!r}; "
        "expected one that exists and that this user may enter"
    )


def _with_heartbeat(url: str) -> str:
    parts = urlsplit(url)
    query = {"heartbeat": _HEARTBEAT_SECONDS, **dict(parse_qsl(parts.query))}
    return urlunsplit(parts._replace(query=urlencode(query)))
