"""Small HTTP servers beside a terminal."""

from http.server import BaseHTTPRequestHandler

import pytest

from filaviva.dev.listening import Listening


@pytest.mark.parametrize(
    ("error", "told"),
    [(BrokenPipeError(), ""), (ConnectionResetError(), ""), (ValueError("ours"), "ValueError")],
)
def test_a_caller_that_hangs_up_leaves_no_trace_on_the_terminal(
    error: Exception, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Listening(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        try:
            raise error
        except (OSError, ValueError):
            server.handle_error(None, ("127.0.0.1", 1))

    written = capsys.readouterr().err
    assert told in written
    assert bool(told) == bool(written)
