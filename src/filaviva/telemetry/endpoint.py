"""The metrics port of every service: /metrics, /healthz (alive) and /readyz (usable)."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry

from filaviva.errors import ConfigurationError
from filaviva.telemetry.exposing import Exposing

Problems = Callable[[], Awaitable[list[str]]]


class Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: the service's stop event ends it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


_LONGEST_AGENT = 100


@dataclass(frozen=True, slots=True)
class Scrape:
    """A GET of /metrics, and who says that it was theirs (a User-Agent)."""

    by: str
    at: float = field(default_factory=time.monotonic)

    @property
    def seconds_ago(self) -> float:
        """How long ago it was."""
        return time.monotonic() - self.at


class Endpoint:
    """Serve metrics and health on a port of their own until stopped."""

    def __init__(
        self, registry: CollectorRegistry, problems: Problems, *, host: str, port: int
    ) -> None:
        self._expose = Exposing(registry)
        self._problems = problems
        self._socket = bind(host, port)
        self.scraped: Scrape | None = None

    @property
    def port(self) -> int:
        """The port that is really bound."""
        return int(self._socket.getsockname()[1])

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        await serve_until(stop, self, self._socket)

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] != "http":
            return
        status, kind, body = await self._answer(scope)
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any) -> tuple[int, bytes, bytes]:
        match scope["path"]:
            case "/metrics":
                told = {name: value.decode("latin-1") for name, value in scope["headers"]}
                self.scraped = Scrape(told.get(b"user-agent", "")[:_LONGEST_AGENT])
                exposed = self._expose(told.get(b"accept", ""))
                return 200, exposed.kind, exposed.body
            case "/healthz":
                return 200, b"application/json", b'{"status":"alive"}'
            case "/readyz":
                status, body = await readiness(self._problems)
                return status, b"application/json", body
            case _:
                return 404, b"text/plain", b"found nothing here; try /metrics, /healthz, /readyz\n"


async def readiness(problems: Problems) -> tuple[int, bytes]:
    """Give status and body for /readyz: 200, or 503 with what is wrong."""
    found = await problems()
    body = {"status": "not ready" if found else "ready", "problems": found}
    return (503 if found else 200), json.dumps(body).encode()


def bind(host: str, port: int) -> socket.socket:
    """Bind a listening socket now, so that a taken port ends the start and not a later request."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # two that are only bound would not notice each other
    except OSError as unusable:
        listener.close()
        raise ConfigurationError(
            f"found {host} port {port} unusable ({unusable.strerror}), expected a free one: "
            "set FILAVIVA_HTTP__PORT or FILAVIVA_METRICS__PORT"
        ) from unusable
    listener.set_inheritable(False)
    return listener


async def serve_until(
    stop: asyncio.Event, app: Any, listener: socket.socket, *, grace: int = 5
) -> None:
    """Run an ASGI app on a bound socket until `stop`, then let requests end within `grace` s."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=grace,
        server_header=False,
    )
    server = Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    server.should_exit = True
    await serving
