"""Logs: JSON for machines, readable lines on a terminal; one line per fact, no payloads.

Whoever writes a line while a job runs or a request is answered (we, uvicorn, a library, a handler
through `logging`) has it named on the line.
"""

import logging
import sys
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Protocol
from uuid import UUID

import structlog
from structlog.types import EventDict, Processor

from filaviva import tracing
from filaviva.telemetry.errors import described


class Job(Protocol):
    """What lines say of the job that runs."""

    @property
    def id(self) -> UUID: ...
    @property
    def type(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def correlation_id(self) -> str: ...


# One variable, made into words only when a line is written: most jobs write none.
_job: ContextVar[Job | None] = ContextVar("filaviva_job", default=None)
# What is answered: uvicorn logs what went wrong when all of ours has returned.
_request: ContextVar[Mapping[str, str] | None] = ContextVar("filaviva_request", default=None)
_NOISY: Final = ("aiormq", "aio_pika", "httpx2", "httpcore2", "httpx", "httpcore")


def speak_of(job: Job) -> None:
    """Name this job on every line that the present task writes from now on."""
    _job.set(job)


def answer(correlation_id: str) -> None:
    """Name this request on every line that the present task writes from now on."""
    _request.set({"correlation_id": correlation_id})


def answer_within(span: Mapping[str, str]) -> None:
    """Name this span, too, even when it has ended."""
    _request.set({**(_request.get() or {}), **span})


def configure(*, service: str, level: int = logging.INFO) -> None:
    """Send structlog's and everybody else's lines through one pipeline to stderr."""
    shared = _facts(service)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(_written(shared))
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level)
    # A lost connection is our fact to state, once; the libraries repeat it per channel.
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def _facts(service: str) -> list[Processor]:
    """Say what every line says, whoever writes it."""

    def named(_logger: Any, _method: str, line: EventDict) -> EventDict:
        line["service"] = service  # not by context: the threads of libraries have none of ours
        return line

    return [
        named,
        structlog.contextvars.merge_contextvars,
        _the_job,
        _the_span,
        _the_request,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _written(shared: list[Processor]) -> logging.Formatter:
    """Write JSON, or readable lines on a terminal."""
    form: Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer(default=str)
    )
    without_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[without_meta, _the_error, _once, form]
    )


def _uncaught(_: type[BaseException], error: BaseException, _at: TracebackType | None) -> None:
    """Tell of the error that ends the process as of every other: Python would quote its text."""
    logging.getLogger("filaviva").critical("ended by an error", exc_info=error)


def _uncaught_in_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_type is not SystemExit:
        name = told.thread.name if told.thread else "?"
        log = logging.getLogger("filaviva")
        log.error("a thread was ended by an error", extra={"which": name}, exc_info=told.exc_value)


def _the_job(_logger: Any, _method: str, line: EventDict) -> EventDict:
    job = _job.get()
    if job is not None:
        line.setdefault("job_id", str(job.id))
        line.setdefault("job_type", job.type)
        line.setdefault("attempt", job.attempt)
        line.setdefault("correlation_id", job.correlation_id)
    return line


def _the_span(_logger: Any, _method: str, line: EventDict) -> EventDict:
    if tracing.spans is not None:
        for name, value in tracing.spans.ids().items():
            line.setdefault(name, value)
    return line


def _the_request(_logger: Any, _method: str, line: EventDict) -> EventDict:
    for name, value in (_request.get() or {}).items():
        line.setdefault(name, value)
    return line


def _the_error(_logger: Any, _method: str, line: EventDict) -> EventDict:
    found = line.pop("exc_info", None)
    error = _raised(found)
    if error is not None:
        line["exception"] = described(error)
    return line


def _once(_logger: Any, _method: str, line: EventDict) -> EventDict:
    line.pop("color_message", None)  # uvicorn's: the line again, for a terminal
    return line


def _raised(found: Any) -> BaseException | None:
    if isinstance(found, BaseException):
        return found
    if isinstance(found, tuple):
        error: BaseException | None = found[1]
        return error
    return sys.exc_info()[1] if found else None
