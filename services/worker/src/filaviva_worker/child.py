"""The process of one blocking attempt: load the app, run the handler, report the outcome."""

import os
import pickle
import select
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any
from uuid import UUID

import structlog

from filaviva.app import load_app
from filaviva.classification import classify
from filaviva.errors import FilavivaError
from filaviva.outcome import Done, Outcome
from filaviva.telemetry import logs
from filaviva_worker.remote import Facts
from filaviva_worker.sync_context import BlockingContext


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the child has to do."""

    app_path: str
    type: str
    version: int
    payload: str
    facts: Facts
    max_result_bytes: int
    span: Mapping[str, str] = field(default_factory=dict)  # the attempt's, for lines of the log


@dataclass(frozen=True, slots=True)
class _Job:
    """What lines of the log say of the job."""

    id: UUID
    type: str
    attempt: int
    correlation_id: str


def main(pipe: Connection, assignment: Assignment) -> None:
    """Run the attempt and report; the process ends with it."""
    for name in [name for name in os.environ if name.startswith("FILAVIVA_")]:
        del os.environ[name]  # the handler has no business with our servers' passwords
    # Ctrl-C reaches all processes of a terminal; the worker decides what ends, and when.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    _end_with_the_worker(pipe)
    _log(assignment)
    outcome = _outcome(pipe, assignment)
    pipe.send(("outcome", outcome))
    pipe.close()
    os._exit(0)  # threads that the handler left behind must not keep the process


def _log(assignment: Assignment) -> None:
    """Write lines as the worker does, with the job on each."""
    logs.configure(service="worker")
    told = assignment.facts
    logs.speak_of(_Job(told.job_id, assignment.type, told.attempt, told.correlation_id))
    structlog.contextvars.bind_contextvars(**assignment.span)


def _stop(*_: object) -> None:
    """Let the handler's `finally` blocks run; SIGKILL follows for who takes too long."""
    raise SystemExit("told to stop")


def _end_with_the_worker(pipe: Connection) -> None:
    """End when the other side of the pipe is gone: a job may be another worker's by then."""
    gone = select.poll()
    gone.register(pipe.fileno(), 0)  # a hang-up is told whatever is asked for

    def watch() -> None:
        gone.poll()
        os._exit(1)

    threading.Thread(target=watch, name="worker watch", daemon=True).start()


def portable(error: Exception) -> Exception:
    """Give the error, or one that says the same where it cannot cross a pipe."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - anything may be wrong with somebody else's exception
        return FilavivaError(f"{type(error).__name__}: {error}")
    return error


def _outcome(pipe: Connection, assignment: Assignment) -> Outcome:
    handler = load_app(assignment.app_path).find(assignment.type, assignment.version)
    if handler is None:  # the worker had one when it sent us
        raise LookupError(f"no handler of {assignment.type} v{assignment.version}")
    context = BlockingContext(
        assignment.facts, _calls(pipe), max_result_bytes=assignment.max_result_bytes
    )
    try:
        message = handler.parse(assignment.payload)  # a contract's validators are users' code too
        pipe.send(("begun", None))
        value = handler.function(message, context)
        return Done(handler.encode_result(value, limit=assignment.max_result_bytes))
    except BaseException as error:  # noqa: BLE001 - the border to code that is not ours
        return classify(error, handler.policy, step=context.failed_step)


def _calls(pipe: Connection) -> Callable[..., Any]:
    lock = threading.Lock()

    def call(operation: str, *arguments: Any) -> Any:
        with lock:
            try:
                pipe.send((operation, arguments))
                succeeded, value = pipe.recv()
            except (EOFError, OSError):
                os._exit(1)  # the worker is gone, and with it the right to go on
        if not succeeded:
            raise value
        return value

    return call
