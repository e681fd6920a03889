"""Canceled work is stopped rung by rung, and its state says how far that is."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from filaviva import App, CancelRequested, Contract, Policy, SyncContext
from filaviva.database.transaction import transact
from filaviva.operations.cancel import cancel
from filaviva.outcome import Canceled, Done
from filaviva.standing import Standing
from filaviva.telemetry.metrics import Metrics
from filaviva_retry_scheduler.decide import decide
from filaviva_worker.attempt import Attempts
from filaviva_worker.ladder import Ladder, Patience
from filaviva_worker.live import Ending, Live, LiveJobs, Rung
from filaviva_worker.release import record_canceled
from fixtures.retrying import Jobs
from fixtures.running import claimed, tools
from fixtures.waiting import until


class Extract(Contract, type="invoice.extract", version=1):
    """The contract of the jobs that the fixture `jobs` stores."""


class Trial:
    """One running job of a handler, which is canceled in the database and told so."""

    def __init__(self, jobs: Jobs, function: Callable[..., Any], **policy: Any) -> None:
        self.jobs = jobs
        self.metrics = Metrics()
        app = App("shop")
        app.handler(Extract, queue="llm", policy=Policy(**policy))(function)
        autocommit = jobs.engine.execution_options(isolation_level="AUTOCOMMIT")
        ladder = Ladder(autocommit, self.metrics, Patience(cooperative=0.1, again=0.05, limit=0.4))
        means = tools(jobs.engine, metrics=self.metrics)
        self.attempts = Attempts(app, "shop:app", means, Standing(jobs.engine), ladder)
        self.live: Live

    async def begin(self) -> "asyncio.Task[Any]":
        job = await claimed(self.jobs, await self.jobs.running())
        handler = self.attempts.handler(job.type, job.version)
        assert handler is not None
        self.live = self.attempts.live(job, handler)
        running = asyncio.create_task(self.attempts.run(job, handler, self.live))
        self.live.task = running  # type: ignore[assignment]
        return running

    async def cancel(self, *, tell: bool = True) -> None:
        job = self.live.job_id
        await transact(self.jobs.engine, lambda c: cancel(c, [job], author="ana"))
        if tell:
            self.live.end(Ending.CANCELED)

    async def rungs(self) -> list[str]:
        """The rungs that the timeline names."""
        events = await self.jobs.events(self.live.job_id)
        return [data["rung"] for kind, data in events if kind == "cancel"]

    def late_steps(self) -> float | None:
        return self.metrics.registry.get_sample_value("filaviva_steps_after_cancel_total")


async def ended(running: "asyncio.Task[Any]") -> Any:
    return await asyncio.wait_for(running, 10)


async def test_what_is_awaited_is_canceled_after_a_short_grace(jobs: Jobs) -> None:
    begun = asyncio.Event()

    async def waits(_job: Extract, _ctx: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    trial = Trial(jobs, waits)
    running = await trial.begin()
    await begun.wait()
    await trial.cancel()

    assert await ended(running) == Canceled()
    assert trial.live.rung is Rung.TASK
    await until(lambda: _equal(trial.rungs, ["task"]))


async def _equal(read: Callable[[], Any], wanted: Any) -> bool:
    return bool(await read() == wanted)


async def test_a_step_that_runs_may_end_within_the_grace_and_is_kept_and_no_other_starts(
    jobs: Jobs,
) -> None:
    begun, ran = asyncio.Event(), list[int]()

    async def one(n: int) -> int:
        ran.append(n)
        begun.set()
        await asyncio.sleep(0.02)
        return n

    async def steps(_job: Extract, ctx: Any) -> None:
        for n in range(1000):
            await ctx.step(f"step-{n}", one, n)

    trial = Trial(jobs, steps)
    running = await trial.begin()
    await begun.wait()
    await trial.cancel()

    assert await ended(running) == Canceled()
    assert trial.live.rung is Rung.COOPERATIVE
    stored = await jobs.all("SELECT name FROM filaviva.steps WHERE state = 'succeeded'")
    assert len(stored) == len(ran)
    assert trial.late_steps() == 0


async def test_no_step_starts_after_a_cancel_that_nobody_told_the_worker(jobs: Jobs) -> None:
    go, ran = asyncio.Event(), list[str]()

    async def steps(_job: Extract, ctx: Any) -> None:
        await go.wait()
        with pytest.raises(CancelRequested):
            await ctx.step("late", ran.append, "late")

    trial = Trial(jobs, steps)
    running = await trial.begin()
    await trial.cancel(tell=False)
    go.set()

    assert await ended(running) == Canceled()
    assert ran == []
    assert await jobs.all("SELECT 1 FROM filaviva.steps") == []


async def test_a_step_that_was_paid_for_is_stored_before_the_work_stops(jobs: Jobs) -> None:
    paid = asyncio.Event()

    async def pays() -> str:
        paid.set()
        return "dear"

    async def steps(_job: Extract, ctx: Any) -> None:
        await ctx.step("pay", pays)

    trial = Trial(jobs, steps)
    running = await trial.begin()
    await paid.wait()
    trial.live.end(Ending.SHUTDOWN)  # at once, without a grace

    assert await ended(running) is Ending.SHUTDOWN
    step = await jobs.one("SELECT state, output FROM filaviva.steps")
    assert (step["state"], step["output"]) == ("succeeded", "dear")


async def test_work_that_looks_for_a_cancel_and_returns_is_canceled(jobs: Jobs) -> None:
    async def polls(_job: Extract, ctx: Any) -> str:
        while not ctx.cancel_requested:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        return "half"

    trial = Trial(jobs, polls)
    running = await trial.begin()
    await trial.cancel()

    assert await ended(running) == Canceled()
    assert trial.live.rung is Rung.COOPERATIVE


async def test_work_that_ends_within_the_grace_without_knowing_has_succeeded(jobs: Jobs) -> None:
    begun = asyncio.Event()

    async def quick(_job: Extract, _ctx: Any) -> str:
        begun.set()
        await asyncio.sleep(0.03)
        return "whole"

    trial = Trial(jobs, quick)
    running = await trial.begin()
    await begun.wait()
    await trial.cancel()

    assert await ended(running) == Done('"whole"')


async def test_work_that_ignores_its_cancel_is_fenced_and_whatever_it_does_then_is_void(
    jobs: Jobs,
) -> None:
    stop, refused = asyncio.Event(), list[type]()

    async def stubborn(_job: Extract, ctx: Any) -> str:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue
        while not refused:
            try:
                await ctx.progress(1, 1)
            except asyncio.CancelledError:  # the ladder goes on asking
                continue
            except Exception as error:
                refused.append(type(error))
                raise
        return "never"

    trial = Trial(jobs, stubborn)
    running = await trial.begin()
    await asyncio.sleep(0)
    job, fence = trial.live.job_id, trial.live.fence
    await trial.cancel()
    await until(lambda: trial.live.rung is Rung.FENCED)

    row = await jobs.row(job)
    assert row["state"] == "cancel_requested"  # nobody has said the truth yet: it still works
    assert row["lease_expires_at"] < row["now"]
    assert trial.live.renew_until == 0
    await transact(jobs.engine, lambda c: decide(c, [(job, fence)], expired=True))
    stop.set()

    assert await ended(running) == Canceled()
    assert [error.__name__ for error in refused] == ["LeaseLost"]
    row, attempt = await jobs.row(job), await jobs.attempt(job)
    assert (row["state"], row["fence"]) == ("canceled", fence + 1)
    assert (attempt["outcome"], attempt["error_code"]) == ("canceled", "CancelIgnored")
    assert await trial.rungs() == ["task", "fenced"]
    count = trial.metrics.registry.get_sample_value(
        "filaviva_cancel_seconds_count", {"rung": "fenced"}
    )
    assert count == 1


@pytest.mark.parametrize("looks", [True, False], ids=["looks for it", "does not look"])
async def test_a_thread_is_not_stopped_and_the_job_ends_as_the_thread_says(
    jobs: Jobs,
    looks: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    begun, go = threading.Event(), threading.Event()

    def blocks(_job: Extract, ctx: SyncContext) -> str:
        begun.set()
        go.wait(10)
        return "stopped" if looks and ctx.cancel_requested else "whole"

    trial = Trial(jobs, blocks)
    running = await trial.begin()
    await asyncio.to_thread(begun.wait, 10)
    await trial.cancel()
    await asyncio.wait({running}, timeout=0.6)

    assert not running.done()
    assert trial.live.renew_until > 0
    go.set()
    assert await ended(running) == (Canceled() if looks else Done('"whole"'))
    assert trial.live.rung is Rung.COOPERATIVE


async def test_a_cancel_that_is_faster_than_its_claim_is_heard(jobs: Jobs) -> None:
    live, others = LiveJobs(), [await jobs.queued() for _ in range(2)]
    job, other = others
    live.cancel(job, 3)
    live.cancel(other, 3)

    mine, newer = Live(job, 3, 1.0), Live(other, 4, 1.0)
    live.add(mine)
    live.add(newer)

    assert mine.ending is Ending.CANCELED
    assert newer.ending is None


async def test_how_it_was_stopped_and_after_how_long_stands_in_the_timeline(jobs: Jobs) -> None:
    job = await jobs.running()
    await transact(jobs.engine, lambda c: cancel(c, [job], author="ana"))

    seconds = await transact(
        jobs.engine, lambda c: record_canceled(c, [(job, 1)], {job: "sigterm"})
    )

    kind, data = (await jobs.events(job))[-1]
    assert (kind, data["status"], data["rung"]) == ("state", "canceled", "sigterm")
    assert 0 <= data["seconds"] <= seconds[job] + 0.001
    assert json.dumps(data)
