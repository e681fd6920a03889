"""Steps: what is finished is never run again, and nothing starts that would not count."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import connect
from filaviva.errors import InvalidOutput, LeaseLost, OutOfReach, Terminal
from filaviva_worker.context import LiveContext
from filaviva_worker.live import Ending, Live
from fixtures.amqp import Proxy
from fixtures.retrying import Jobs
from fixtures.running import claimed, tools
from fixtures.waiting import until


class Line(BaseModel):
    kind: Literal["line"] = "line"
    price: Decimal


class Discount(BaseModel):
    kind: Literal["discount"] = "discount"
    percent: int


Making = Callable[..., Awaitable[LiveContext]]


@pytest.fixture
def context_of(jobs: Jobs) -> Making:
    """Make the context of a running job's present attempt."""

    async def make(job: UUID, **different: Any) -> LiveContext:
        mine = await claimed(jobs, job)
        with_these = replace(tools(jobs.engine), **different)
        return LiveContext(mine, Live(mine.id, mine.fence, math.inf), with_these)

    return make


async def next_attempt(jobs: Jobs, job: UUID, *, revision: int = 1) -> None:
    """The job was taken away, queued and claimed again."""
    await jobs.all("UPDATE filaviva.jobs SET state = 'queued' WHERE id = :id", id=job)
    await jobs.claim(job)
    await jobs.all("UPDATE filaviva.jobs SET revision = :n WHERE id = :id", id=job, n=revision)


async def taken_away(jobs: Jobs, job: UUID) -> None:
    await jobs.all("UPDATE filaviva.jobs SET fence = fence + 1 WHERE id = :id", id=job)


async def steps_of(jobs: Jobs, job: UUID) -> list[dict[str, Any]]:
    return await jobs.all("SELECT * FROM filaviva.steps WHERE job_id = :id ORDER BY name", id=job)


class Counted:
    """A function that knows how often it ran."""

    def __init__(self, value: Any = 7) -> None:
        self.runs = 0
        self.value = value

    async def __call__(self, *_: Any):  # type: ignore[no-untyped-def]
        self.runs += 1
        return self.value


async def test_a_finished_step_is_found_again_by_a_later_attempt(
    jobs: Jobs, context_of: Making
) -> None:
    job, read = await jobs.running(), Counted({"total": 12.5})

    first = await (await context_of(job)).step("read", read)
    await next_attempt(jobs, job)
    again = await (await context_of(job)).step("read", read)

    assert (first, again, read.runs) == ({"total": 12.5}, {"total": 12.5}, 1)
    (step,) = await steps_of(jobs, job)
    assert (step["name"], step["state"], step["attempt"]) == ("read", "succeeded", 1)
    assert step["finished_at"] >= step["started_at"]


async def test_a_step_without_an_output_is_not_run_again_either(
    jobs: Jobs, context_of: Making
) -> None:
    job, told = await jobs.running(), Counted(None)

    await (await context_of(job)).step("tell", told)
    await next_attempt(jobs, job)

    assert await (await context_of(job)).step("tell", told) is None
    assert told.runs == 1


async def test_a_step_named_twice_in_one_attempt_runs_once(jobs: Jobs, context_of: Making) -> None:
    job, read = await jobs.running(), Counted()
    ctx = await context_of(job)

    assert [await ctx.step("read", read), await ctx.step("read", read)] == [7, 7]
    assert read.runs == 1


async def test_edited_input_runs_its_steps_again(jobs: Jobs, context_of: Making) -> None:
    job, read = await jobs.running(), Counted()
    await (await context_of(job)).step("read", read)

    await next_attempt(jobs, job, revision=2)
    await (await context_of(job)).step("read", read)

    assert read.runs == 2
    assert [step["revision"] for step in await steps_of(jobs, job)] == [1, 2]


async def test_steps_of_one_name_in_two_jobs_are_two_steps(jobs: Jobs, context_of: Making) -> None:
    one, other, read = await jobs.running(attempt=2), await jobs.running(attempt=2), Counted()

    for job in (one, other):
        await (await context_of(job)).step("read", read)

    assert read.runs == 2


async def test_a_failed_step_is_recorded_and_run_again(jobs: Jobs, context_of: Making) -> None:
    job = await jobs.running()

    async def fails() -> None:
        raise ConnectionError("gateway")

    ctx = await context_of(job)
    with pytest.raises(ConnectionError):
        await ctx.step("read", fails)
    (step,) = await steps_of(jobs, job)
    assert (step["state"], ctx.failed_step) == ("failed", "read")

    await next_attempt(jobs, job)
    await (await context_of(job)).step("read", Counted())
    (step,) = await steps_of(jobs, job)
    assert (step["state"], step["attempt"]) == ("succeeded", 2)


async def test_a_step_whose_process_died_runs_again(jobs: Jobs, context_of: Making) -> None:
    job, read = await jobs.running(), Counted()
    await (await context_of(job)).begin_step("read")

    await next_attempt(jobs, job)
    await (await context_of(job)).step("read", read)

    assert read.runs == 1


async def test_a_canceled_step_is_recorded_as_failed(jobs: Jobs, context_of: Making) -> None:
    job, begun = await jobs.running(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task((await context_of(job)).step("wait", endless))
    await asyncio.wait_for(begun.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert [step["state"] for step in await steps_of(jobs, job)] == ["failed"]


def union() -> Line | Discount:
    return Discount(percent=5)


def lines() -> list[Line | Discount]:
    return [Line(price=Decimal("0.1000000000000000001")), Discount(percent=3)]


async def total() -> Decimal:
    return Decimal("12345678901234567890.10")


def several() -> tuple[int, set[str], dict[UUID, bytes]]:
    return 1, {"a"}, {UUID(int=1): b"\x01"}


def anything():  # type: ignore[no-untyped-def]
    return {"n": [1, 2.5, None, "ü"]}


@pytest.mark.parametrize("fn", [union, lines, total, several, anything])
async def test_an_output_comes_back_as_what_it_was(
    jobs: Jobs, context_of: Making, fn: Callable[[], Any]
) -> None:
    job = await jobs.running()
    first = await (await context_of(job)).step("make", fn)

    await next_attempt(jobs, job)
    again = await (await context_of(job)).step("make", fn)

    assert again == first
    assert type(again) is type(first)


@pytest.mark.parametrize(
    "value",
    ["a\x00b", "x" * 20_000, object(), float("nan"), {"deep": "a\x00b"}, "\ud800"],
    ids=["NUL", "too large", "no JSON", "NaN", "NUL inside", "half a surrogate"],
)
async def test_an_output_that_cannot_be_kept_fails_the_step(
    jobs: Jobs, context_of: Making, value: Any
) -> None:
    job = await jobs.running()

    with pytest.raises(InvalidOutput):
        await (await context_of(job)).step("make", Counted(value))

    (step,) = await steps_of(jobs, job)
    assert (step["state"], step["output"]) == ("failed", None)


async def test_a_stale_worker_cannot_begin_a_step(jobs: Jobs, context_of: Making) -> None:
    job, read = await jobs.running(), Counted()
    ctx = await context_of(job)
    await taken_away(jobs, job)

    with pytest.raises(LeaseLost):
        await ctx.step("read", read)

    assert read.runs == 0
    assert await steps_of(jobs, job) == []


async def test_a_stale_worker_cannot_finish_a_step(jobs: Jobs, context_of: Making) -> None:
    job = await jobs.running()

    async def slow() -> str:
        await taken_away(jobs, job)
        return "late"

    with pytest.raises(LeaseLost):
        await (await context_of(job)).step("read", slow)

    (step,) = await steps_of(jobs, job)
    assert (step["state"], step["output"]) == ("running", None)
    assert await jobs.events(job) == []


async def test_a_stale_worker_does_not_undo_a_step_that_its_successor_runs(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()
    stale = await context_of(job)
    await stale.begin_step("read")
    await next_attempt(jobs, job)
    fresh = await context_of(job)
    await fresh.begin_step("read")

    await stale.finish_step("read", "failed")
    await fresh.finish_step("read", "succeeded", '"mine"')

    (step,) = await steps_of(jobs, job)
    assert (step["state"], step["attempt"], step["output"]) == ("succeeded", 2, "mine")


@pytest.mark.parametrize("state", ["queued", "succeeded", "failed", "canceled"])
async def test_no_step_is_written_in_another_state_under_the_same_fence(
    jobs: Jobs, context_of: Making, state: str
) -> None:
    job = await jobs.running()
    ctx = await context_of(job)
    await jobs.all("ALTER TABLE filaviva.jobs DISABLE TRIGGER jobs_transition")
    await jobs.all(f"UPDATE filaviva.jobs SET state = '{state}' WHERE id = :id", id=job)

    with pytest.raises(LeaseLost):
        await ctx.step("read", Counted())
    with pytest.raises(LeaseLost):
        await ctx.progress(1, 2)


@pytest.mark.parametrize("why", list(Ending))
async def test_no_step_starts_once_the_job_was_told_to_end(
    jobs: Jobs, context_of: Making, why: Ending
) -> None:
    job, read = await jobs.running(), Counted()
    ctx = await context_of(job)
    ctx._live.end(why)  # noqa: SLF001 - as the heartbeat does

    with pytest.raises(LeaseLost):
        await ctx.step("read", read)

    assert (read.runs, ctx.cancel_requested) == (0, True)


async def test_a_step_starts_only_once_the_lease_can_be_renewed(
    jobs: Jobs, context_of: Making
) -> None:
    job, read, asked, fresh = await jobs.running(), Counted(), 0, False

    def lease_is_fresh() -> bool:
        nonlocal asked
        asked += 1
        return fresh

    ctx = await context_of(job, lease_is_fresh=lease_is_fresh)
    running = asyncio.create_task(ctx.step("read", read))
    await until(lambda: asked >= 3)
    assert (read.runs, running.done()) == (0, False)

    fresh = True
    await asyncio.wait_for(running, 30)
    assert read.runs == 1


async def test_a_step_that_waits_for_its_lease_never_starts_once_the_job_was_told_to_end(
    jobs: Jobs, context_of: Making
) -> None:
    job, read = await jobs.running(), Counted()
    ctx = await context_of(job, lease_is_fresh=lambda: False)
    running = asyncio.create_task(ctx.step("read", read))
    await until(lambda: ctx.waited)

    ctx._live.end(Ending.LOST)  # noqa: SLF001 - as the heartbeat does
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(running, 30)

    assert read.runs == 0


async def test_a_step_waits_until_its_start_can_be_stored(
    jobs: Jobs, database: str, context_of: Making
) -> None:
    job, read = await jobs.running(), Counted()
    async with Proxy(database) as way:
        engine = connect(way.url, name="test", size=1)
        ctx = await context_of(job, engine=engine)
        way.close()
        running = asyncio.create_task(ctx.step("read", read))
        await until(lambda: ctx.waited)
        assert read.runs == 0

        await way.open()
        await asyncio.wait_for(running, 30)
        await engine.dispose()

    assert read.runs == 1


async def test_the_error_of_a_step_is_told_though_it_cannot_be_stored(
    jobs: Jobs, database: str, context_of: Making
) -> None:
    engine = connect(database, name="test", size=1)
    engine.sync_engine.pool._timeout = 0.1  # type: ignore[attr-defined] # noqa: SLF001 - sooner
    ctx = await context_of(await jobs.running(), engine=engine)

    async def refuse() -> int:
        held.append(await engine.connect())  # nobody gets the only connection any more
        raise Terminal("this one is told")

    held: list[AsyncConnection] = []
    with pytest.raises(Terminal, match="this one is told"):
        await ctx.step("read", refuse)
    await held[0].close()
    await engine.dispose()


async def test_a_step_costs_what_its_model_calls_cost(jobs: Jobs, context_of: Making) -> None:
    job = await jobs.running()
    ctx = await context_of(job)

    async def ask(cents: int, rival: asyncio.Event, mine: asyncio.Event) -> int:
        mine.set()
        await rival.wait()  # both steps are open when either records
        await ctx.record_call("p", "m", {"input_tokens": 1}, cost_usd=Decimal(cents) / 100)
        await ctx.record_call("p", "m", {"input_tokens": 1}, cost_usd=Decimal(cents) / 100)
        return cents

    a, b = asyncio.Event(), asyncio.Event()
    await asyncio.gather(ctx.step("a", ask, 1, b, a), ctx.step("b", ask, 10, a, b))
    await ctx.record_call("p", "m", {}, cost_usd=Decimal("0.5"))

    costs = {step["name"]: step["cost_usd"] for step in await steps_of(jobs, job)}
    assert costs == {"a": Decimal("0.02"), "b": Decimal("0.20")}
    called = await jobs.all("SELECT step, count(*) AS n FROM filaviva.llm_calls GROUP BY step")
    assert {each["step"]: each["n"] for each in called} == {"a": 2, "b": 2, None: 1}
    assert (await jobs.row(job))["cost_usd"] == Decimal("0.72")
    assert (await jobs.attempt(job))["cost_usd"] == Decimal("0.72")


async def test_a_step_inside_a_step_keeps_calls_apart(jobs: Jobs, context_of: Making) -> None:
    job = await jobs.running()
    ctx = await context_of(job)

    async def inner() -> None:
        await ctx.record_call("p", "m", {}, cost_usd=Decimal(1))

    async def outer() -> None:
        await ctx.step("inner", inner)
        await ctx.record_call("p", "m", {}, cost_usd=Decimal(2))

    await ctx.step("outer", outer)

    called = await jobs.all("SELECT step, cost_usd FROM filaviva.llm_calls ORDER BY id")
    assert [(each["step"], each["cost_usd"]) for each in called] == [("inner", 1), ("outer", 2)]


async def test_the_error_that_ended_a_step_is_the_one_that_is_told(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()

    async def fails() -> None:
        await taken_away(jobs, job)
        raise ValueError("the real reason")

    with pytest.raises(ValueError, match="the real reason"):
        await (await context_of(job)).step("read", fails)


class AwayFor:
    """An engine whose database is away for some transactions once the work has begun."""

    def __init__(self, jobs: Jobs) -> None:
        self._engine = jobs.engine
        self.connect = jobs.engine.connect
        self.away = 0

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        if self.away:
            self.away -= 1
            raise ConnectionRefusedError
        async with self._engine.begin() as connection:
            yield connection


async def test_an_output_is_kept_though_the_database_was_away_when_the_step_ended(
    jobs: Jobs, context_of: Making
) -> None:
    job, engine = await jobs.running(), AwayFor(jobs)

    async def read() -> int:
        engine.away = 3
        return 7

    assert await (await context_of(job, engine=engine)).step("read", read) == 7
    (step,) = await steps_of(jobs, job)
    assert step["state"] == "succeeded"


async def test_what_was_paid_for_waits_for_the_database_until_the_job_is_told_to_end(
    jobs: Jobs, context_of: Making
) -> None:
    job, engine, fresh = await jobs.running(), AwayFor(jobs), True

    async def read() -> int:
        nonlocal fresh
        engine.away, fresh = 1000, False
        return 7

    ctx = await context_of(job, engine=engine, lease_is_fresh=lambda: fresh)
    running = asyncio.create_task(ctx.step("read", read))
    await until(lambda: 0 < engine.away < 998)
    assert not running.done()

    ctx._live.end(Ending.SHUTDOWN)  # noqa: SLF001 - as a stop does
    with pytest.raises(OutOfReach, match="was not stored: the database is out of reach"):
        await asyncio.wait_for(running, 30)
