"""Log lines: one JSON object each, with the job on it, and nothing of what it is about."""

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from sqlalchemy.exc import DBAPIError

from filaviva.database.transaction import said
from filaviva.http.request_ids import RequestIds
from filaviva.http.spans import traced
from filaviva.telemetry import logs
from filaviva.telemetry.errors import described
from fixtures.spans import Kept

CANARY = "canaryofthepayload"
SCOPE = {
    "type": "http",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/jobs",
    "query_string": f"key={CANARY}".encode(),
    "server": ("127.0.0.1", 80),
    "headers": [(b"x-request-id", b"order-17"), (b"host", b"example.com")],
}


@dataclass(frozen=True)
class Job:
    """A job that runs."""

    id: UUID
    type: str = "invoice.extract"
    attempt: int = 2
    correlation_id: str = "order-17"


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    """The pipeline of a service; afterwards as it was."""
    root, kept = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook
    logs.configure(service="worker")
    yield
    root.handlers[:], root.level = handlers, level
    sys.excepthook, threading.excepthook = hooks
    structlog.configure(**kept)
    logging.captureWarnings(capture=False)


def lines(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().err.splitlines()]


async def test_whoever_writes_names_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(service="worker")  # to this test's stderr
    job = Job(uuid4())

    async def attempt() -> None:
        logs.speak_of(job)
        structlog.get_logger("filaviva.job").info("ours", step="read")
        for_terminals = {"color_message": "a library's %s"}
        logging.getLogger("uvicorn.error").warning("a library's %s", "line", extra=for_terminals)

    await asyncio.create_task(attempt())
    logging.getLogger("other").warning("outside")
    ours, theirs, outside = lines(capsys)
    for line in (ours, theirs):
        assert line["job_id"] == str(job.id)
        assert (line["job_type"], line["attempt"]) == ("invoice.extract", 2)
        assert (line["correlation_id"], line["service"]) == ("order-17", "worker")
        assert line["timestamp"].endswith("Z")
    assert (ours["event"], ours["level"], ours["logger"]) == ("ours", "info", "filaviva.job")
    assert ours["step"] == "read"
    assert (theirs["event"], theirs["level"]) == ("a library's line", "warning")
    assert "color_message" not in theirs
    assert "job_id" not in outside


def test_a_line_from_any_thread_names_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(service="worker")
    thread = threading.Thread(target=lambda: logging.getLogger("x").warning("from a thread"))
    thread.start()
    thread.join()
    assert lines(capsys)[0]["service"] == "worker"


async def test_what_goes_wrong_with_a_request_names_it(
    capsys: pytest.CaptureFixture[str], kept: Kept
) -> None:
    logs.configure(service="producer")

    async def fails(*_: Any) -> None:
        raise ValueError(CANARY)

    async def request() -> None:  # as uvicorn does it
        try:
            await RequestIds(traced(fails))(SCOPE, None, None)  # type: ignore[arg-type]
        except ValueError as error:
            uvicorn = logging.getLogger("uvicorn.error")
            uvicorn.error("Exception in ASGI app", exc_info=error)

    await asyncio.create_task(request())
    (line,) = lines(capsys)
    (span,) = kept.spans
    assert line["correlation_id"] == "order-17"
    assert line["trace_id"] == f"{span.context.trace_id:032x}"
    assert CANARY not in json.dumps(line)
    assert CANARY not in span.to_json()


def test_who_ends_a_process_or_a_thread_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(service="producer")
    thread = threading.Thread(target=lambda: {}[CANARY], name="heartbeat")
    thread.start()
    thread.join()
    sys.excepthook(ValueError, ValueError(CANARY), None)
    first, second = lines(capsys)
    assert (first["which"], first["level"]) == ("heartbeat", "error")
    assert first["exception"].endswith("KeyError")
    assert (second["level"], second["exception"]) == ("critical", "ValueError")
    assert CANARY not in json.dumps([first, second])


def test_errors_are_told_without_their_texts(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(service="worker")
    try:
        try:
            {}[CANARY]
        except KeyError as missing:
            raise ValueError(f"cannot read {CANARY}") from missing
    except ValueError:
        logging.getLogger("shop").exception("a lookup failed")
        structlog.get_logger("filaviva").exception("ours too")
    for line in lines(capsys):
        assert CANARY not in json.dumps(line)
        told = line["exception"].splitlines()
        assert told[-1] == "ValueError"
        assert "KeyError" in told
        assert told[0].endswith("in test_errors_are_told_without_their_texts")


def test_what_the_system_says_of_an_error_stays() -> None:
    assert described(ConnectionRefusedError(111, "Connection refused")) == (
        "ConnectionRefusedError: Connection refused"
    )
    group = ExceptionGroup(CANARY, [ValueError(CANARY), OSError(28, "No space left on device")])
    assert described(group).splitlines() == [
        "ExceptionGroup",
        "  ValueError",
        "  OSError: No space left on device",
    ]


def test_of_what_the_database_refused_only_the_code_is_told() -> None:
    class Refused(Exception):
        sqlstate = "22P02"

    error = DBAPIError(f"INSERT … {CANARY}", (CANARY,), Refused(f"invalid input: {CANARY}"))
    assert said(error) == "DBAPIError: SQLSTATE 22P02"
    assert said(ConnectionResetError(104, "Connection reset by peer")) == (
        "ConnectionResetError: [Errno 104] Connection reset by peer"
    )
