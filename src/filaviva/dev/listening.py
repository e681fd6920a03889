"""A small HTTP server beside a terminal that somebody reads."""

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class Listening(ThreadingHTTPServer):
    """Answer each call in a thread; a caller that hangs up is no error of ours."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of what went wrong here, and of nothing else."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
