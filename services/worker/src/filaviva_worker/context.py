"""What a handler can do while it runs: every write goes through the job's fence."""

import asyncio
import hashlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID, uuid4

import structlog
from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import Executable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import failpoints, tracing
from filaviva.broker.connection import Backoff
from filaviva.canonical import storable
from filaviva.context import Context
from filaviva.database.transaction import DATABASE_ERRORS, transact, transient, unreachable
from filaviva.errors import CancelRequested, LeaseLost, OutOfReach
from filaviva.outcome import Effect
from filaviva.shape import Shape
from filaviva_worker import calls
from filaviva_worker.claim import Claimed
from filaviva_worker.control import refuse_control
from filaviva_worker.live import Ending, Live
from filaviva_worker.step_spans import UNTRACED, StepSpans
from filaviva_worker.steps import Steps
from filaviva_worker.tools import Tools

_PROGRESS = """
WITH mine AS (
    UPDATE filaviva.jobs SET progress = $3::text::jsonb, updated_at = clock_timestamp()
    WHERE id = $1 AND fence = $2 AND state IN ('running', 'cancel_requested') RETURNING id)
INSERT INTO filaviva.job_events (job_id, kind, data)
SELECT id, 'progress', $3::text::jsonb FROM mine RETURNING job_id
"""

# The last statement before COMMIT: nobody can take the job between it and the commit.
_STILL_MINE = """
SELECT 1 FROM filaviva.jobs
WHERE id = $1 AND fence = $2 AND state IN ('running', 'cancel_requested') FOR SHARE
"""


T = TypeVar("T")

_AWAY = "the database is out of reach"
_LONGEST_KEY = 255
_LONGEST_MESSAGE = 500
_LARGEST = 2**53  # of the numbers that every JSON reader takes exactly

# Steps may run side by side; each model call belongs to the step that made it.
_current_step: ContextVar[str | None] = ContextVar("filaviva_step", default=None)


class LiveContext(Context):
    """The context of one attempt."""

    def __init__(self, job: Claimed, live: Live, tools: Tools) -> None:
        self._job = job
        self._live = live
        self._tools = tools
        self._steps: Steps | None = None
        self._spans = UNTRACED if tracing.spans is None else StepSpans(tracing.spans)
        self.effects: list[Effect] = []
        self.failed_step: str | None = None
        self.remote_step: str | None = None  # of a handler in another thread or process
        self.noticed = False  # the handler knows that it is to stop
        self.waited = False  # for our own database: what it took is not the handler's time
        self.job_id = job.id
        self.attempt = job.attempt
        self.tenant = job.tenant
        self.subject = job.subject
        self.correlation_id = job.correlation_id

    @property
    def cancel_requested(self) -> bool:
        self.noticed = self.noticed or self._stopping
        return self._stopping

    @property
    def logger(self) -> Any:  # made when asked for: most jobs log nothing
        return structlog.get_logger("filaviva.job").bind(
            job_id=str(self.job_id),
            attempt=self.attempt,
            job_type=self._job.type,
            correlation_id=self.correlation_id,
        )

    def idempotency_key(self, name: str) -> str:
        """The same for every attempt and replay of these inputs; another once they are edited."""
        return idempotency_key(self.job_id, self._job.revision, name)

    def effect(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> None:
        """Let the statement commit with the completion, or not at all."""
        refuse_control(statement)
        self.effects.append(Effect(statement, parameters))

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kw: Any) -> Any:
        """Run `fn` once for this job: a later attempt gets its stored output instead."""
        output = output_of(fn)
        saved = await self.begin_step(name, tool=getattr(fn, "__name__", None), inputs=(args, kw))
        if saved is not None:
            return output.adapter.validate_json(saved)
        token = _current_step.set(name)
        try:
            await self._until_it_may(name)  # a cancel may have come while we wrote
            with self._spans.within(name):
                value = fn(*args, **kw)
                if inspect.isawaitable(value):
                    value = await value
            text = output.encode(value, limit=self._tools.max_result_bytes)
        except BaseException:
            await asyncio.shield(self.finish_step(name, "failed"))
            raise
        finally:
            _current_step.reset(token)
        await _to_its_end(self.finish_step(name, "succeeded", text))
        return value

    async def begin_step(
        self, name: str, *, tool: str | None = None, inputs: object = None
    ) -> str | None:
        """Give the stored output (JSON text) of a finished step, or record that it runs now."""
        await self._until_it_may(name)
        steps = self._checkpoints()
        if not steps.fresh:
            with _within_reach(f"step {name!r} was not started"):
                saved = await self._until_answered(lambda on: steps.saved(on, name))
            if saved is not None:
                self._spans.reused(name, tool)
                return saved.output or "null"
        failpoints.passing("step.before")
        hashed = _hash(inputs)
        try:
            with _within_reach(f"step {name!r} was not started"):
                twice = await self._until_answered(
                    lambda on: steps.begin(on, name, tool=tool, input_hash=hashed)
                )
        except CancelRequested:
            self._live.end(Ending.CANCELED)  # the row says so before anybody told us
            self.noticed = True
            raise
        if twice is not None:
            return twice.output or "null"
        self._spans.begin(name, tool)
        return None

    async def finish_step(self, name: str, state: Any, output: str | None = None) -> None:
        """Store what the step came to; one that failed is told by its own error, stored or not."""
        steps, late = self._checkpoints(), False
        self._spans.end(name, state)
        if state == "failed":
            self.failed_step = name
            with suppress(LeaseLost, *DATABASE_ERRORS):
                late = await transact(self._tools.engine, lambda on: steps.finish(on, name, state))
        else:
            with _within_reach(f"step {name!r} was not stored"):
                late = await self._until_answered(lambda on: steps.finish(on, name, state, output))
        if late:
            self._tools.metrics.steps_after_cancel.inc()
        self._tools.count_step(self._job.type, name, state)
        failpoints.passing("step.saved")

    async def _until_answered(
        self, ask: Callable[[AsyncConnection], Awaitable[T]], *, on: AsyncEngine | None = None
    ) -> T:
        """Ask again for as long as the database is away: what it does not hear is paid for twice.

        The fence in what is asked decides whether the job is ours still. Only who has been told to
        stop does not wait.
        """
        backoff = Backoff(first=0.1, most=1)
        while True:
            try:
                return await transact(on or self._tools.engine, ask)
            except DATABASE_ERRORS as away:
                if not transient(away) or (self._stopping and not self._tools.lease_is_fresh()):
                    raise
            self.waited = True
            await asyncio.sleep(backoff.next())

    async def progress(self, done: int, total: int, message: str | None = None) -> None:
        """Show how far the work is; LeaseLost if the job is not ours any more."""
        _check_number("done", done)
        _check_number("total", total)
        # It goes to everybody who follows the job: a sentence, not a document.
        said = None if message is None else storable(message, _LONGEST_MESSAGE)
        text = to_json({"done": done, "total": total, "message": said}).decode()
        arguments = (self.job_id, self._job.fence, text)

        async def write(connection: AsyncConnection) -> bool:
            return (await connection.exec_driver_sql(_PROGRESS, arguments)).first() is not None

        with _within_reach("the progress was not stored"):
            shown = await self._until_answered(write, on=self._tools.autocommit)
        if not shown:
            raise LeaseLost(f"job {self.job_id} is not ours any more")
        self._tools.notifier.changed((self.job_id,))

    async def record_call(
        self, provider: str, model: str, usage: object, *, cost_usd: Decimal | None = None
    ) -> None:
        """Put a model call into the ledger and add its cost to the attempt and the job."""
        call = calls.priced(provider, model, usage, cost_usd=cost_usd)
        step, key = _current_step.get() or self.remote_step, uuid4()

        async def write(connection: AsyncConnection) -> None:
            await calls.record(
                connection, call, key=key, job_id=self.job_id, attempt=self.attempt, step=step
            )

        self._spans.called(call, step)
        await self._until_answered(write)
        self._live.spent += float(call.cost_usd or 0)
        self._tools.count_call(call, self._job.type)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction of its own that commits only if the lease is still ours."""
        begun: AsyncConnection | None = None
        try:
            async with self._tools.transactions.begin() as begun:
                yield begun
                arguments = (self.job_id, self._job.fence)
                if (await begun.exec_driver_sql(_STILL_MINE, arguments)).first() is None:
                    raise LeaseLost(f"nothing was written: job {self.job_id} is not ours any more")
        except DATABASE_ERRORS as away:
            # Once it is open, the handler may have met another server: that one is not ours.
            if not unreachable(away) or not (begun is None or isinstance(away, DBAPIError)):
                raise
            raise OutOfReach("the transaction was not confirmed: " + _AWAY) from away

    def _checkpoints(self) -> Steps:
        if self._steps is None:
            job = self._job
            self._steps = Steps(job.id, job.fence, job.revision, fresh=job.attempt == 1)
        return self._steps

    @property
    def _stopping(self) -> bool:
        return self._live.ending is not None

    async def _until_it_may(self, name: str) -> None:
        """Wait until leases are renewed: who cannot must assume that the job is somebody else's."""
        backoff = Backoff(first=0.1, most=1)
        while not (self._stopping or self._tools.lease_is_fresh()):
            self.waited = True
            await asyncio.sleep(backoff.next())
        if not self.cancel_requested:
            return
        if self._live.ending is Ending.CANCELED:
            raise CancelRequested(f"step {name!r} was not started: the job is canceled")
        raise LeaseLost(f"step {name!r} was not started: {self._live.ending}")


def _check_number(name: str, found: object) -> None:
    # What is no JSON number, or one that no reader takes, must not get into the job's row.
    fits = isinstance(found, int | float) and not isinstance(found, bool)
    if not fits or not -_LARGEST <= found <= _LARGEST:  # type: ignore[operator] # a number by now
        shown = "a very long number" if fits and isinstance(found, int) else repr(found)[:40]
        raise TypeError(f"ctx.progress: found {name}={shown}, expected a number up to {_LARGEST}")


@contextmanager
def _within_reach(what: str) -> Iterator[None]:
    """Say in our words that our own database is away: the handler's author has no part in it."""
    try:
        yield
    except DATABASE_ERRORS as away:
        if not unreachable(away):
            raise
        raise OutOfReach(f"{what}: {_AWAY}") from away


def idempotency_key(job_id: UUID, revision: int, name: str) -> str:
    """Name an effect of these inputs; never longer than the 255 characters that providers take."""
    key = f"{job_id}:{revision}:{name}"
    return key if len(key) <= _LONGEST_KEY else hashlib.sha256(key.encode()).hexdigest()


async def _to_its_end(storing: Coroutine[Any, Any, None]) -> None:
    """Await it; a cancel has to wait meanwhile: what was paid for is kept. A second one goes by."""
    task = asyncio.ensure_future(storing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(asyncio.shield(task), return_exceptions=True)
        raise


@lru_cache(maxsize=1024)
def output_of(fn: Callable[..., Any]) -> Shape:
    """Give the shape of what a step's function returns (unannotated: any JSON)."""
    return Shape.of(fn)


def _hash(inputs: object) -> bytes | None:
    try:
        return hashlib.sha256(to_json(inputs, fallback=_placeholder)).digest()
    except (PydanticSerializationError, RecursionError):
        return None


def _placeholder(value: object) -> str:
    return type(value).__qualname__
