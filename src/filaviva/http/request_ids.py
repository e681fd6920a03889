"""Every request has an id: the caller's, or ours; it is in the answer, the problem and the log."""

import re
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filaviva.telemetry import logs

_ACCEPTED = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


class RequestIds:
    """ASGI middleware around everything else: ids and the headers that every answer has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with `state.request_id`."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _asked_for(scope) or uuid4().hex.encode()
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        logs.answer(request_id.decode())
        extra = [(b"x-request-id", request_id), (b"x-content-type-options", b"nosniff")]

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers: list[Any] = [*message["headers"], *extra]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_with_id)


def _asked_for(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return bytes(value) if _ACCEPTED.fullmatch(value) else None
    return None
