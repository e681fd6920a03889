"""What every service process shares: settings, signals, logs, metrics, loops in one group."""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, cast
from uuid import uuid4

import structlog
import uvloop
from prometheus_client import disable_created_metrics

from filaviva.errors import ConfigurationError
from filaviva.settings import Settings, read
from filaviva.telemetry import logs
from filaviva.telemetry.export import traced
from filaviva.telemetry.metrics import Metrics
from filaviva.worst import Worst

log = structlog.get_logger("filaviva")

_LAST_SECONDS = 1.0
# What a batch of jobs allocates is freed by counting; to look for cycles among it every 700 objects
# took a fifth of a worker's time.
_OBJECTS_BETWEEN_COLLECTIONS = 10_000
# From being asked to stop to being gone, when nothing else says how long that may take.
_PATIENCE_SECONDS = 30.0
_FILES = 65_536
_BETWEEN_LOOKS = 15.0


class Loop(Protocol):
    """A duty that turns until it is asked to stop."""

    async def run(self, stop: asyncio.Event) -> None:
        """Turn until `stop` is set."""
        ...


Main = Callable[[Settings, asyncio.Event], Awaitable[None]]


def run(
    name: str, main: Main, *, patience: Callable[[Settings], float] = lambda _: _PATIENCE_SECONDS
) -> None:
    """Run a service to its end: exit code 0 when asked to stop, 2 for wrong settings.

    SIGTERM and SIGINT set the stop event; a second one ends the process at once, and so does
    `patience` (in seconds), when a server that does not answer keeps us from ending.
    """
    logs.configure(service=name)
    disable_created_metrics()  # type: ignore[no-untyped-call] # a series for each series, which nobody asks for
    _allow_many_files()
    gc.freeze()  # what is loaded by now stays
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 50)
    try:
        settings = read(Settings)
        with traced(name):
            uvloop.run(_until_stopped(name, settings, main, patience(settings)))
    except ConfigurationError as wrong:
        print(f"filaviva {name} cannot start:\n{wrong}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None


def _allow_many_files() -> None:
    """Open as many files as we may: the usual 1024 are fewer than a producer has connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems have a lower limit still, which they do not tell.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _until_stopped(name: str, settings: Settings, main: Main, patience: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unawaited)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _ask_to_stop, stop, number)
    log.info("started", name=name)
    code = 1
    try:
        await _within(patience, asyncio.ensure_future(main(settings, stop)), stop)
        code = 0
        log.info("stopped", name=name)
    finally:
        await _end_what_is_left(code)


def _unawaited(_: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
    """Log what nobody awaited; the loop's own line would quote the error's text."""
    log.error("an error that nobody awaited", what=told["message"], exc_info=told.get("exception"))


async def _within(patience: float, work: "asyncio.Future[None]", stop: asyncio.Event) -> None:
    """Let the work end; once it is asked to stop it has so long, and then it is left behind."""
    stopping = asyncio.ensure_future(stop.wait())
    ends: tuple[asyncio.Future[Any], ...] = (work, stopping)
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    _, late = await asyncio.wait({work}, timeout=patience)
    if late:
        log.warning("did not stop in time", seconds=patience)
    else:
        work.result()


async def _end_what_is_left(code: int) -> None:
    """End the process at once if something in it will not end.

    It would work on with nobody left who renews its leases, beside whoever has its jobs by then.
    """
    loop = asyncio.get_running_loop()
    left: set[asyncio.Task[Any]] = asyncio.all_tasks()
    left.discard(cast("asyncio.Task[Any]", asyncio.current_task()))
    for task in left:
        task.cancel()
    left.add(loop.create_task(loop.shutdown_default_executor()))
    _, late = await asyncio.wait(left, timeout=_LAST_SECONDS)
    if late:
        log.warning("ended with work that would not end", left=len(late))
        if code:
            log.error("failed", exc_info=sys.exc_info())
        sys.stdout.flush()
        os._exit(code)


def _ask_to_stop(stop: asyncio.Event, number: signal.Signals) -> None:
    if stop.is_set():
        log.warning("stopped at once", signal=number.name)
        # Not sys.exit: that waits for every task and thread, and one of them is why we are asked.
        os._exit(1)
    stop.set()


async def serve(*loops: Loop, stop: asyncio.Event) -> None:
    """Run the loops side by side; when one fails or `stop` is set, all end."""
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(_turn(loop, stop), name=type(loop).__name__)


async def _turn(loop: Loop, stop: asyncio.Event) -> None:
    try:
        await loop.run(stop)
    finally:
        stop.set()


async def wait(stop: asyncio.Event, seconds: float) -> None:
    """Pause, but wake at once when asked to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass


async def end_within(seconds: float, tasks: Iterable["asyncio.Task[None]"]) -> int:
    """Let the tasks end, cancel those that have not by then, and return how many that were."""
    _, late = await asyncio.wait(tuple(tasks), timeout=seconds)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=_LAST_SECONDS)
    return len(late)


async def first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until one of these is set, or the time is up."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def process_id() -> str:
    """Name this process: its host, its pid, and what tells it from a later one of both."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


class LoopLag:
    """Measure how late the event loop is: a handler that blocks it shows here."""

    def __init__(self, metrics: Metrics, *, every: float = 0.5) -> None:
        self._metrics = metrics
        self._every = every
        self.worst = Worst()
        # Who looks every 15 s would see one measurement in thirty.
        self._lately = Worst(seconds=_BETWEEN_LOOKS)

    async def run(self, stop: asyncio.Event) -> None:
        """Measure until stopped; say so when it was late by more than a second."""
        while not stop.is_set():
            before = time.monotonic()
            await wait(stop, self._every)
            if stop.is_set():
                return
            lag = max(0.0, time.monotonic() - before - self._every)
            for worst in (self.worst, self._lately):
                worst.saw(lag)
            self._metrics.loop_lag.set(self._lately.value)
            if lag > 1:
                log.warning("the event loop was blocked", seconds=round(lag, 3))
