"""Run a blocking handler in a process that can be stopped: SIGTERM, then SIGKILL.

The child is forked from a server that has the app loaded; it talks to this side through a pipe
and ends when the pipe does, so a worker that dies leaves no orphan at work.
"""

import asyncio
import contextvars
import multiprocessing
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

from filaviva.outcome import Done, Failure, Outcome, Retry
from filaviva_worker import child
from filaviva_worker.child import Assignment
from filaviva_worker.live import Rung
from filaviva_worker.remote import Remote
from filaviva_worker.threads import calls_to

_PATIENCE = 3.0  # seconds from SIGTERM to SIGKILL

_context = multiprocessing.get_context("forkserver")


def preload(app_path: str) -> None:
    """Load the app once, now, in the server from which the children are forked."""
    _context.set_forkserver_preload([child.__name__, app_path.partition(":")[0]])
    forkserver.ensure_running()


def _nobody(_rung: Rung) -> None:
    """Nobody asked how far the end of a process is."""


async def run_in_process(
    assignment: Assignment,
    remote: Remote,
    begun: Callable[[], None],
    ending: Callable[[Rung], None] = _nobody,
) -> Outcome:
    """Return the outcome that the child reports; a cancel ends the child first.

    `begun` is called once the child is about to run the handler: its time counts from then.
    `ending` hears how the child is ended. What it had done before its end is done.
    """
    loop = asyncio.get_running_loop()
    ours, theirs = _context.Pipe()
    process = _context.Process(target=child.main, args=(theirs, assignment), daemon=True)
    try:
        await _to_its_end(process.start)
    except asyncio.CancelledError:
        ours.close()
        await _ended(process)
        raise
    finally:
        theirs.close()
    ended: asyncio.Future[Outcome | None] = loop.create_future()
    answer = calls_to(remote, loop)
    around = contextvars.copy_context()  # what the child calls belongs to the attempt
    serving = (_serve, ours, answer, loop, ended, begun)
    threading.Thread(target=around.run, args=serving, daemon=True).start()
    try:
        outcome = await asyncio.shield(ended)
    except asyncio.CancelledError:
        await _ended(process, lambda rung: loop.call_soon_threadsafe(ending, rung))
        outcome = await _last_word(ended)
        if not isinstance(outcome, Done):
            raise
    finally:
        await remote.rollback()  # what a killed child had begun
    await _to_its_end(lambda: _reap(process))
    return outcome if outcome is not None else _died(process.exitcode)


async def _ended(process: Any, ending: Callable[[Rung], object] = _nobody) -> None:
    """Return when the process is gone, whoever cancels us meanwhile: we end it as it is."""
    with suppress(asyncio.CancelledError):
        await _to_its_end(lambda: _end(process, ending))


async def _last_word(ended: "asyncio.Future[Outcome | None]") -> Outcome | None:
    """Give what a process that is gone had reported: its pipe is read to its end."""
    with suppress(asyncio.CancelledError):
        await asyncio.wait({ended}, timeout=_PATIENCE)
    return ended.result() if ended.done() else None


async def _to_its_end(work: Callable[[], None]) -> None:
    """Await blocking work, however often we are told to stop meanwhile; then be canceled."""
    task, canceled = asyncio.ensure_future(asyncio.to_thread(work)), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            canceled = True
    task.result()
    if canceled:
        raise asyncio.CancelledError


def _serve(
    pipe: Connection,
    answer: Callable[..., Any],
    loop: asyncio.AbstractEventLoop,
    ended: asyncio.Future[Outcome | None],
    begun: Callable[[], None],
) -> None:
    """Answer the child's calls until it reports its outcome or is gone."""
    outcome: Outcome | None = None
    try:
        while outcome is None:
            kind, content = pipe.recv()
            if kind == "outcome":
                outcome = content
            elif kind == "begun":
                loop.call_soon_threadsafe(begun)
            else:
                pipe.send(_answered(answer, kind, content))
    except (EOFError, OSError):
        pass
    finally:
        pipe.close()
        if not loop.is_closed():
            loop.call_soon_threadsafe(_tell, ended, outcome)


def _answered(answer: Callable[..., Any], operation: str, arguments: Any) -> tuple[bool, Any]:
    try:
        return True, answer(operation, *arguments)
    except Exception as error:  # noqa: BLE001 - it is raised again in the child
        return False, child.portable(error)


def _tell(ended: asyncio.Future[Outcome | None], outcome: Outcome | None) -> None:
    if not ended.done():
        ended.set_result(outcome)


def _reap(process: Any) -> None:
    """It is about to end; what closed its pipe and goes on is ended."""
    process.join(_PATIENCE)
    if process.is_alive():
        _end(process)


def _end(process: Any, ending: Callable[[Rung], object] = _nobody) -> None:
    ending(Rung.SIGTERM)
    process.terminate()
    process.join(_PATIENCE)
    if process.is_alive():
        ending(Rung.SIGKILL)
        process.kill()
        process.join()


def _died(exit_code: int | None) -> Outcome:
    how = f"exit code {exit_code}"
    if exit_code is not None and exit_code < 0:
        how = signal.Signals(-exit_code).name
    return Retry(Failure("unexpected", "ProcessDied", f"the handler's process ended by {how}"))
