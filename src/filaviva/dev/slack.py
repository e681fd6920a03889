"""A local stand-in for Slack's incoming webhook: a real HTTP server that keeps what it gets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from http.server import BaseHTTPRequestHandler
from threading import Thread
from typing import Any

from filaviva.dev.listening import Listening


@dataclass(frozen=True, slots=True)
class Inbox:
    """The address to post to, and the messages that came."""

    url: str
    messages: list[dict[str, Any]] = field(default_factory=list)

    def headlines(self) -> list[str]:
        """Return the text that a phone would show of every message."""
        return [unescape(str(message.get("text", ""))) for message in self.messages]

    def texts(self) -> list[str]:
        """Return every message as one text, blocks included."""
        return [unescape(_text(message)) for message in self.messages]


@contextmanager
def stand_in() -> Iterator[Inbox]:
    """Listen on a free loopback port until the end of the block."""
    messages: list[dict[str, Any]] = []
    server = Listening(("127.0.0.1", 0), _webhook(messages))
    thread = Thread(target=server.serve_forever, name="slack-stand-in", daemon=True)
    thread.start()
    try:
        yield Inbox(f"http://127.0.0.1:{server.server_address[1]}/services/stand-in", messages)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _webhook(messages: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            messages.append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
            """Keep the terminal for the journey."""

    return Webhook


def _text(part: Any) -> str:
    """Collect every text of a message, in order."""
    if isinstance(part, str):
        return part
    if isinstance(part, list):
        return "\n".join(filter(None, map(_text, part)))
    if isinstance(part, dict):
        shown = ("title", "text", "fallback", "blocks", "attachments", "fields", "elements")
        return "\n".join(filter(None, (_text(part[key]) for key in shown if key in part)))
    return ""
