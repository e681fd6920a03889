"""Count and time requests by route, method and status.

A route is its template, never a path: what fits none is "unmatched".
"""

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filaviva.telemetry.metrics import Metrics

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNEXPECTED: Final = "500"


class Metered:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, plain: Iterable[str]) -> None:
        self._app = app
        self._plain = frozenset(plain)
        self._child = lru_cache(maxsize=1024)(metrics.http_requests.labels)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; what is measured ends with the first byte of the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, told = time.perf_counter(), False

        async def send_and_count(message: Message) -> None:
            nonlocal told
            if message["type"] == "http.response.start" and not told:
                told = True
                self._count(scope, str(message["status"]), time.perf_counter() - started)
            await send(message)

        try:
            await self._app(scope, receive, send_and_count)
        except Exception:
            if not told:
                self._count(scope, _UNEXPECTED, time.perf_counter() - started)
            raise

    def _count(self, scope: Scope, status: str, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._child(self._template(scope), method, status).observe(seconds)

    def _template(self, scope: Scope) -> str:
        # Only the framework's own routes tell that they were taken.
        path: str | None = getattr(scope.get("route"), "path", None)
        if path is None and scope["path"] in self._plain:
            path = scope["path"]
        return path or "unmatched"
