"""Run a blocking handler in a thread of its own.

A thread cannot be stopped: what does not end keeps its slot and its lease until the process exits.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from filaviva_worker.remote import Remote
from filaviva_worker.sync_context import BlockingContext


async def run_in_thread(
    function: Callable[[Any, BlockingContext], Any], message: Any, context: BlockingContext
) -> Any:
    """Return what the handler returns; a cancel waits for it to end, however long that takes."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        try:
            value = function(message, context)
        except BaseException as error:  # noqa: BLE001 - the border to code that is not ours
            _post(loop, _fail, ended, error)
        else:
            _post(loop, _succeed, ended, value)

    # What the handler logs and calls belongs to its attempt in there, too.
    around = contextvars.copy_context()
    threading.Thread(target=around.run, args=(work,), name="handler", daemon=True).start()
    return await _whatever_happens(ended)


def calls_to(remote: Remote, loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    """Make the blocking `call` of a context in another thread."""

    def call(operation: str, *arguments: Any) -> Any:
        work = getattr(remote, operation)(*arguments)
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    return call


async def _whatever_happens(ended: asyncio.Future[Any]) -> Any:
    canceled = False
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            if ended.done():
                break
            canceled = True
    if canceled:
        ended.exception()  # looked at: nobody else will
        raise asyncio.CancelledError
    return ended.result()


def _post(loop: asyncio.AbstractEventLoop, tell: Any, *arguments: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, *arguments)


def _succeed(ended: asyncio.Future[Any], value: Any) -> None:
    ended.set_result(value)


def _fail(ended: asyncio.Future[Any], error: BaseException) -> None:
    if isinstance(error, StopIteration):
        error = RuntimeError("the handler raised StopIteration")  # a future refuses it
    ended.set_exception(error)
