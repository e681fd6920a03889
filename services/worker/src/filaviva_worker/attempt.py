"""Attempt: run one claimed job through its handler and say what it came to.

Before: the job is `running` under our fence.
After: nothing is written; the outcome is a value that `settle` records.
May happen twice: yes, by another worker, when this one's lease ended; only one outcome counts.
"""

import asyncio
import math
import time
from collections.abc import Callable

from filaviva import failpoints, tracing
from filaviva.app import App
from filaviva.classification import classify
from filaviva.errors import OutOfReach
from filaviva.handler import Handler
from filaviva.outcome import KEY_NOT_ALLOWED, Canceled, Dead, Done, Failure, Outcome
from filaviva.standing import Standing
from filaviva_contracts import Contract
from filaviva_worker.child import Assignment
from filaviva_worker.claim import Claimed
from filaviva_worker.context import LiveContext
from filaviva_worker.ladder import Ladder
from filaviva_worker.live import Ending, Live
from filaviva_worker.process import run_in_process
from filaviva_worker.remote import Facts, Remote
from filaviva_worker.sync_context import BlockingContext
from filaviva_worker.threads import calls_to, run_in_thread
from filaviva_worker.tools import Tools

# What a handler gets to clean up after its time is over, before its lease is let go.
GRACE = 10.0


def _to_nobody(job_type: str, version: int, payload: str) -> None:
    """Sample nothing."""


class Attempts:
    """Run claimed jobs through the app's handlers."""

    def __init__(  # noqa: PLR0913 - the composition of what runs jobs
        self,
        app: App,
        app_path: str,
        tools: Tools,
        standing: Standing,
        ladder: Ladder,
        *,
        offer: Callable[[str, int, str], None] = _to_nobody,
    ) -> None:
        self._app = app
        self._app_path = app_path
        self._tools = tools
        self._standing = standing
        self._ladder = ladder
        self._offer = offer

    def handler(self, job_type: str, version: int) -> Handler | None:
        """Find the handler that reads this version; None if there is none here."""
        return self._app.find(job_type, version)

    def live(self, job: Claimed, handler: Handler) -> Live:
        """Begin the record of a running job; its lease is renewed until its time is over."""
        seconds = _seconds(job, handler)
        until = math.inf if seconds is None else time.monotonic() + seconds + GRACE
        return Live(
            job.id, job.fence, until, on_cancel=lambda live: self._ladder.begin(live, handler)
        )

    async def run(self, job: Claimed, handler: Handler, live: Live) -> Outcome | Ending:
        """Run one attempt; an Ending means that its outcome is void, or that it is given back."""
        if live.ending is not None:  # told before it began
            return _ended(live) or live.ending
        refusal = self._standing.refusal(job.submitted_by, job.type)
        if refusal is not None:
            return Dead(Failure("refused", KEY_NOT_ALLOWED, refusal))
        self._offer(job.type, job.version, job.payload)
        context = LiveContext(job, live, self._tools)
        failpoints.passing("execute.started")
        try:
            message = handler.parse(job.payload)  # a contract's validators are users' code too
            async with asyncio.timeout(None) as limit:
                outcome = await self._call(handler, message, job, context, live, limit)
        except asyncio.CancelledError:
            return _ended(live) or _canceled_from_inside(handler, context)
        except GeneratorExit:
            raise  # nobody waits for this attempt any more
        except BaseException as error:  # noqa: BLE001 - the border to code that is not ours
            return _ended(live) or classify(
                _cause(error, context), handler.policy, step=context.failed_step
            )
        return _stopped(live, context) or outcome

    async def _call(  # noqa: PLR0913, PLR0917 - what one attempt is made of
        self,
        handler: Handler,
        message: Contract,
        job: Claimed,
        context: LiveContext,
        live: Live,
        limit: asyncio.Timeout,
    ) -> Outcome:
        seconds = _seconds(job, handler)
        if not handler.is_async and handler.policy.timeout is not None:
            return await self._in_process(job, context, live, lambda: _limit(limit, seconds))
        _limit(limit, seconds)
        if handler.is_async:
            value = await handler.function(message, context)
        else:
            value = await run_in_thread(handler.function, message, self._blocking(job, context))
        result = handler.encode_result(value, limit=self._tools.max_result_bytes)
        return Done(result, tuple(context.effects))

    def _blocking(self, job: Claimed, context: LiveContext) -> BlockingContext:
        call = calls_to(Remote(context), asyncio.get_running_loop())
        return BlockingContext(_facts(job), call, max_result_bytes=self._tools.max_result_bytes)

    async def _in_process(
        self, job: Claimed, context: LiveContext, live: Live, begun: Callable[[], None]
    ) -> Outcome:
        assignment = Assignment(
            app_path=self._app_path,
            type=job.type,
            version=job.version,
            payload=job.payload,
            facts=_facts(job),
            max_result_bytes=self._tools.max_result_bytes,
            span={} if tracing.spans is None else tracing.spans.ids(),
        )
        outcome = await run_in_process(
            assignment, Remote(context), begun, lambda rung: self._ladder.reached(live, rung)
        )
        if isinstance(outcome, Done):
            return Done(outcome.result, tuple(context.effects))
        return outcome


def _seconds(job: Claimed, handler: Handler) -> float | None:
    allowed = handler.policy.seconds(is_async=handler.is_async)
    if job.seconds_left is None:
        return allowed
    left = max(0.0, job.seconds_left)
    return left if allowed is None else min(allowed, left)


def _limit(limit: asyncio.Timeout, seconds: float | None) -> None:
    if seconds is not None:
        limit.reschedule(asyncio.get_running_loop().time() + seconds)


def _facts(job: Claimed) -> Facts:
    return Facts(job.id, job.attempt, job.revision, job.tenant, job.subject, job.correlation_id)


def _ended(live: Live) -> Outcome | Ending | None:
    return Canceled() if live.ending is Ending.CANCELED else live.ending


def _stopped(live: Live, context: LiveContext) -> Outcome | None:
    """Tell work that returns because it was told to stop from work that was finished all the same.

    Who asked the context knew. A handler that caught its CancelledError and returns a result has
    one, as everywhere in asyncio.
    """
    return Canceled() if live.ending is Ending.CANCELED and context.noticed else None


def _cause(error: BaseException, context: LiveContext) -> BaseException:
    """A time limit that passed while our own database was away is no failure of the handler."""
    if not (context.waited and isinstance(error, TimeoutError)):
        return error
    return OutOfReach("the time limit passed while the database was out of reach")


def _canceled_from_inside(handler: Handler, context: LiveContext) -> Outcome:
    # A library canceled what the handler awaited (a lost connection does that): not our doing.
    lost = ConnectionError("what the handler waited for was canceled by the library it called")
    return classify(lost, handler.policy, step=context.failed_step)
