"""One open stream of server-sent events, from its first byte to its last.

Before: a follower that is told what is new. After: the client has it all, or has gone, or is too
slow. May happen twice: a client that connects again names the last id it has seen.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from filaviva.operations.jobs import Event
from filaviva_producer.streams import Follower

_PATIENCE = 30.0  # for a client that does not read
_RETRY = (1000, 3000)  # ms: those whom a restart cut off do not come back all at once

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",  # nginx would keep events back
}


@dataclass(frozen=True, slots=True)
class Stream:
    """What is sent: an opening, then each entry as `tell` writes it, while `still` holds."""

    opening: bytes
    tell: Callable[[Event], bytes]
    still: Callable[[], Awaitable[bool]]
    beat: float
    patience: float = _PATIENCE


class EventStream(Response):
    """Send a stream; the seat and the follower are held for as long as it is open."""

    def __init__(
        self,
        stream: Stream,
        seat: AbstractContextManager[None],
        following: AbstractContextManager[Follower] | None,
    ) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._stream = stream
        self._seat = seat
        self._following = following

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request (ASGI); what the seat refuses is raised before the first byte."""
        with self._seat:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await self._send(receive, send)
            except TimeoutError:
                return  # the client does not read: the server closes the connection

    async def _send(self, receive: Receive, send: Send) -> None:
        retry = format_sse_event(retry=random.randint(*_RETRY))  # noqa: S311 - spreads, hides nothing
        await self._write(send, retry + self._stream.opening)
        if self._following is not None:
            with self._following as follower:
                leaving = asyncio.create_task(_leave(receive, follower))
                try:
                    await self._follow(follower, send)
                finally:
                    leaving.cancel()
        await self._write(send, b"", more=False)

    async def _follow(self, follower: Follower, send: Send) -> None:
        while not follower.over:
            entries = await follower.take(self._stream.beat)
            if entries:
                await self._write(send, b"".join(map(self._stream.tell, entries)))
            elif not follower.over:
                if not await self._stream.still():
                    return
                await self._write(send, KEEPALIVE_COMMENT)

    async def _write(self, send: Send, body: bytes, *, more: bool = True) -> None:
        # The server's `send` returns once its buffer for this client is below its limit.
        message: Message = {"type": "http.response.body", "body": body, "more_body": more}
        async with asyncio.timeout(self._stream.patience):
            await send(message)


async def _leave(receive: Receive, follower: Follower) -> None:
    """End a stream whose client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    follower.leave()
