"""Attempt: whatever a user's code does, it ends as an outcome of its own job."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import field_validator

from filaviva import App, Contract, Policy
from filaviva.outcome import Canceled, Dead, Done, Outcome, Retry
from filaviva.standing import Standing
from filaviva_worker.attempt import Attempts
from filaviva_worker.live import Ending, Live
from fixtures.retrying import Jobs
from fixtures.running import claimed, ladder, tools
from fixtures.waiting import until


class Fussy(Contract, type="invoice.extract", version=1):
    """A contract whose validator may raise anything."""

    error: str = ""

    @field_validator("error")
    @classmethod
    def _raise(cls, value: str) -> str:
        if value == "nul":
            raise ValueError("not \x00 this")
        if value == "key":
            raise KeyError("surprise")
        if value == "deep":
            raise RecursionError
        return value


class Trial:
    """A handler, a running job for it, and what they come to."""

    def __init__(self, jobs: Jobs, function: Callable[..., Any], **policy: Any) -> None:
        self.jobs = jobs
        self.app = app = App("shop")
        app.handler(Fussy, queue="llm", policy=Policy(**policy))(function)
        engine, self.lease_is_fresh = jobs.engine, True
        shared = tools(engine, lease_is_fresh=lambda: self.lease_is_fresh)
        self.attempts = Attempts(app, "shop:app", shared, Standing(engine), ladder(engine))
        self.live: Live | None = None

    async def begin(self, payload: str = "{}", seconds_left: float | None = None) -> Any:
        """Start the attempt; give its task."""
        job = await claimed(self.jobs, await self.jobs.running())
        job.payload, job.seconds_left = payload, seconds_left
        handler = self.attempts.handler(job.type, job.version)
        assert handler is not None
        self.live = self.attempts.live(job, handler)
        running = asyncio.create_task(self.attempts.run(job, handler, self.live))
        self.live.task = running  # type: ignore[assignment]
        return running

    async def run(self, payload: str = "{}", seconds_left: float | None = None) -> Any:
        return await asyncio.wait_for(await self.begin(payload, seconds_left), 20)

    async def told(self, why: Ending, begun: asyncio.Event) -> Outcome | Ending:
        """Tell the attempt to end once the handler has begun."""
        running = await self.begin()
        await asyncio.wait_for(begun.wait(), 10)
        assert self.live is not None
        self.live.end(why)
        outcome: Outcome | Ending = await asyncio.wait_for(running, 10)
        return outcome


async def fine(_job: Fussy, _ctx: Any) -> str:
    return "fine"


@pytest.mark.parametrize("payload", ['{"error": "nul"}', '{"error": 1}', "[]", "null"])
async def test_input_that_does_not_fit_its_contract_is_dead_and_says_so(
    jobs: Jobs, payload: str
) -> None:
    outcome = await Trial(jobs, fine).run(payload)

    assert isinstance(outcome, Dead)
    assert (outcome.failure.error_class, outcome.failure.code) == ("invalid_input", "InvalidInput")
    assert "\x00" not in outcome.failure.message


@pytest.mark.parametrize("payload", ['{"error": "key"}', '{"error": "deep"}'])
async def test_a_contract_that_cannot_be_read_fails_that_job_alone(
    jobs: Jobs, payload: str
) -> None:
    outcome = await Trial(jobs, fine).run(payload)

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "unexpected"


class Aborted(BaseException):
    """What some libraries end their tasks with."""


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        MemoryError(),
        RecursionError(),
        KeyError("a\x00b"),
        KeyboardInterrupt(),
        Aborted(),
        BaseExceptionGroup("several", [Aborted(), ValueError()]),
    ],
)
async def test_whatever_a_handler_raises_is_an_outcome_that_can_be_stored(
    jobs: Jobs, error: BaseException
) -> None:
    async def raises(_job: Fussy, _ctx: Any) -> None:
        raise error

    outcome = await Trial(jobs, raises).run()

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "unexpected"
    assert "\x00" not in outcome.failure.message


async def test_a_handler_that_outlasts_its_timeout_is_stopped(jobs: Jobs) -> None:
    async def endless(_job: Fussy, _ctx: Any) -> None:
        await asyncio.Event().wait()

    outcome = await Trial(jobs, endless, timeout=0.1).run()

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "timeout"


async def test_a_timeout_that_passed_while_our_database_was_away_costs_no_attempt(
    jobs: Jobs,
) -> None:
    async def one_step(_job: Fussy, ctx: Any) -> None:
        await ctx.step("read", fine, _job, ctx)

    trial = Trial(jobs, one_step, timeout=0.5)
    trial.lease_is_fresh = False
    outcome = await trial.run()

    assert isinstance(outcome, Retry)
    assert (outcome.failure.error_class, outcome.failure.code) == ("lost", "OutOfReach")


async def test_a_deadline_nearer_than_the_timeout_bounds_the_attempt(jobs: Jobs) -> None:
    async def endless(_job: Fussy, _ctx: Any) -> None:
        await asyncio.Event().wait()

    outcome = await Trial(jobs, endless, timeout=600).run(seconds_left=0.1)

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "timeout"


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        (Ending.CANCELED, Canceled()),
        (Ending.LOST, Ending.LOST),
        (Ending.SHUTDOWN, Ending.SHUTDOWN),
    ],
)
@pytest.mark.parametrize("manner", ["obeys", "translates"])
async def test_work_told_to_end_ends_as_what_it_was_told(
    jobs: Jobs, why: Ending, outcome: Any, manner: str
) -> None:
    begun = asyncio.Event()

    async def works(_job: Fussy, _ctx: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if manner == "obeys":
                raise
            raise RuntimeError("interrupted") from None

    assert await Trial(jobs, works).told(why, begun) == outcome


async def test_work_that_had_finished_when_it_was_told_to_end_is_done(jobs: Jobs) -> None:
    begun = asyncio.Event()

    async def works(_job: Fussy, _ctx: Any) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished all the same"
        return ""

    outcome = await Trial(jobs, works).told(Ending.CANCELED, begun)

    assert outcome == Done('"finished all the same"')


async def test_a_library_that_cancels_what_it_was_asked_is_a_lost_connection(jobs: Jobs) -> None:
    async def works(_job: Fussy, _ctx: Any) -> None:
        raise asyncio.CancelledError

    outcome = await Trial(jobs, works).run()

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "connection"


async def test_a_result_that_cannot_be_kept_is_dead_and_has_no_effects(jobs: Jobs) -> None:
    async def spoils(_job: Fussy, ctx: Any) -> str:
        ctx.effect("never")
        return "a\x00b"

    outcome = await Trial(jobs, spoils).run()

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "invalid_output"


async def test_a_thread_is_awaited_before_its_job_is_let_go(jobs: Jobs) -> None:
    begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def blocks(_job: Fussy, _ctx: Any) -> str:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(20)
        return "over"

    trial = Trial(jobs, blocks)
    running = await trial.begin()
    await asyncio.wait_for(begun.wait(), 10)
    assert trial.live is not None
    trial.live.end(Ending.SHUTDOWN)
    await until(lambda: trial.live is not None and trial.live.ending)
    assert not running.done()
    may_end.set()

    assert await asyncio.wait_for(running, 10) is Ending.SHUTDOWN


async def test_a_blocking_context_does_what_the_async_one_does(jobs: Jobs) -> None:
    def works(_job: Fussy, ctx: Any) -> dict[str, Any]:
        first = ctx.step("double", lambda n: 2 * n, 21)
        again = ctx.step("double", lambda n: 3 * n, 21)
        ctx.progress(1, 2)
        ctx.record_call("p", "m", {"input_tokens": 1})
        return {"first": first, "again": again, "key": ctx.idempotency_key("store")}

    outcome = await Trial(jobs, works).run()

    assert isinstance(outcome, Done)
    assert outcome.result is not None
    assert outcome.result.startswith('{"first":42,"again":42,"key":"')
    (step,) = await jobs.all("SELECT * FROM filaviva.steps")
    assert (step["name"], step["state"], step["output"]) == ("double", "succeeded", 42)
    assert (await jobs.one("SELECT progress FROM filaviva.jobs"))["progress"]["done"] == 1


async def test_what_is_run_is_offered_as_a_sample_as_it_came(jobs: Jobs) -> None:
    offered: list[tuple[str, int, str]] = []
    trial = Trial(jobs, fine)
    trial.attempts = Attempts(
        trial.app,
        "shop:app",
        tools(jobs.engine),
        Standing(jobs.engine),
        ladder(jobs.engine),
        offer=lambda *job: offered.append(job),
    )

    await trial.run('{"error": "", "more": 1}')

    assert offered == [("invoice.extract", 1, '{"error": "", "more": 1}')]
