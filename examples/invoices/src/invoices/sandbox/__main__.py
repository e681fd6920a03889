"""Run the sandbox provider: `python -m invoices.sandbox [--port 0] [--state FILE]`."""

import argparse
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from threading import Thread

import uvicorn
from fastapi import FastAPI

from invoices.sandbox.server import Sandbox, create_app

log = logging.getLogger("invoices.sandbox")


def main() -> None:
    """Serve until told to stop."""
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    # Bound before anything is announced: whoever reads the address can connect at once.
    listener = socket.create_server((options.host, options.port))
    place = Announcement(options.state, f"http://{options.host}:{listener.getsockname()[1]}")
    settings = uvicorn.Config(
        create_app(Sandbox(), lifespan=place.while_serving),
        log_level="warning",
        # Hanging on purpose must not keep the process from ending.
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(settings)
    if options.attached:
        Thread(target=_end_with_stdin, args=(server,), name="attached", daemon=True).start()
    server.run(sockets=[listener])


def _end_with_stdin(server: uvicorn.Server) -> None:
    sys.stdin.buffer.read()
    server.should_exit = True


class Announcement:
    """The file that says where the sandbox is, there as long as it serves."""

    def __init__(self, state: Path | None, url: str) -> None:
        self._state = state
        self._url = url

    def while_serving(self, _app: FastAPI) -> AbstractAsyncContextManager[None]:
        """Announce at the start, take it back at the end."""
        return self._announced()

    @asynccontextmanager
    async def _announced(self) -> AsyncIterator[None]:
        log.info("this is a SANDBOX, not a model provider: %s", self._url)
        self._write()
        yield
        self._remove()

    def _write(self) -> None:
        """Write the address in one go: a reader sees all of it or nothing."""
        if self._state is None:
            return
        self._state.parent.mkdir(parents=True, exist_ok=True)
        draft = self._state.with_name(f"{self._state.name}.{os.getpid()}")
        draft.write_text(json.dumps({"sandbox": True, "url": self._url, "pid": os.getpid()}))
        draft.replace(self._state)

    def _remove(self) -> None:
        if self._state is not None:
            self._state.unlink(missing_ok=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m invoices.sandbox", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--state", type=Path, help="file to write the address to, as JSON")
    parser.add_argument("--attached", action="store_true", help="end when standard input closes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
