"""Serve an application on a port that is bound before anything else starts."""

import asyncio
from typing import Any

from filaviva.telemetry.endpoint import bind, serve_until


class HttpServer:
    """The HTTP port of a service; port 0 takes a free one."""

    def __init__(self, app: Any, *, host: str, port: int, grace: int = 10) -> None:
        self._app = app
        self._host = host
        self._socket = bind(host, port)
        self._grace = grace

    @property
    def port(self) -> int:
        """The port that is really bound."""
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Where it answers."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then let open requests end within the grace period."""
        await serve_until(stop, self._app, self._socket, grace=self._grace)
