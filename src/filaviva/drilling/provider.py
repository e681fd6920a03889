"""The drill's provider: a real HTTP server that is there or cut, and remembers what it was asked.

Before: nobody listens. After `open`: calls are answered; after `cut`: connections are refused.
May happen twice: a call under a key that it knows gets the first one's answer, and has no effect.
"""

import json
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from filaviva.dev.listening import Listening
from filaviva.drill.serving import CALLS
from filaviva.errors import FilavivaError

_GLANCE = 0.02


class NotServed(FilavivaError):
    """The provider's place is taken, or not ours."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What came to the provider: effects, one for each key, and calls that were repeats."""

    effects: int = 0
    repeats: int = 0


class Provider:
    """One place to listen."""

    def __init__(self, host: str, port: int) -> None:
        self._place = (host, port)
        self._server: Listening | None = None
        self._thread: Thread | None = None
        self._lock = Lock()
        self._numbers: dict[str, int] = {}
        self._repeats = 0

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()

    def open(self) -> None:
        """Listen."""
        if self._server is not None:
            return
        try:
            self._server = Listening(self._place, _answering(self))
        except OSError as taken:
            host, port = self._place
            why = taken.strerror or str(taken)
            raise NotServed(
                f"found {host}:{port} not free to listen on ({why}), expected the place that "
                "FILAVIVA_DRILL__PROVIDER_URL leads workers to: name another with --listen"
            ) from taken
        self._thread = Thread(
            target=self._server.serve_forever, args=(_GLANCE,), name="provider", daemon=True
        )
        self._thread.start()

    def cut(self) -> None:
        """Close the listening socket: whoever connects is refused."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            server.server_close()
            self._thread.join()

    @property
    def calls(self) -> Calls:
        """What came until now."""
        with self._lock:
            return Calls(len(self._numbers), self._repeats)

    def take(self, key: str) -> int:
        """Do what is asked for once for each key; give the number of the effect."""
        with self._lock:
            if key in self._numbers:
                self._repeats += 1
            return self._numbers.setdefault(key, len(self._numbers) + 1)


def _answering(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            key = self.headers.get("Idempotency-Key", "")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != CALLS or not key:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            body = json.dumps({"number": provider.take(key)}).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the terminal for the drill."""

    return Answering
