"""Cancel on running services: told at once, honest to the end, an effect only if it succeeded."""

import asyncio
import signal
import time
from uuid import UUID

import pytest

from fixtures.journey import Journey
from fixtures.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def cancel(ground: Journey, job: UUID) -> tuple[int, str]:
    """Cancel over HTTP; give the answer's status and the job's."""
    answer = await ground.call("producer", "POST", f"/v1/jobs/{job}/cancel", json={})
    content = answer.json()
    return answer.status_code, content["code"] if answer.is_error else content["status"]


async def started(ground: Journey, job: UUID) -> None:
    """Wait until its handler runs."""
    await until(lambda: ground.executions(job), seconds=30, every=0.02)


async def state(ground: Journey, job: UUID) -> str:
    return str((await ground.row(job))["state"])


async def last_event(ground: Journey, job: UUID) -> str:
    return str(
        await ground.value(
            "SELECT data FROM filaviva.job_events WHERE job_id = $1 AND kind = 'state'"
            " ORDER BY id DESC LIMIT 1",
            job,
        )
    )


async def late_steps(ground: Journey) -> float:
    return await ground.now("worker").metric("filaviva_steps_after_cancel_total")


async def test_work_is_told_at_once_and_stops(standing: Journey) -> None:
    job = await standing.submit(seconds=60)
    await started(standing, job)

    began = time.monotonic()
    assert await cancel(standing, job) == (202, "cancel_requested")
    assert await standing.final(job) == {job: "canceled"}

    # Half a second of grace, then the task is canceled; the rest is for a busy machine.
    assert time.monotonic() - began < 3
    assert '"rung": "task"' in await last_event(standing, job)
    assert await standing.effects(job) == {job: 0}
    assert await cancel(standing, job) == (409, "job_final")


async def test_when_nobody_tells_the_heartbeat_does(standing: Journey) -> None:
    job = await standing.submit(seconds=60)
    await started(standing, job)

    await standing.fetch(
        "UPDATE filaviva.jobs SET state = 'cancel_requested',"
        " cancel_requested_at = clock_timestamp() WHERE id = $1",
        job,
    )

    assert await standing.final(job, seconds=10) == {job: "canceled"}


async def test_a_hundred_cancels_against_completions_leave_an_effect_only_where_one_succeeded(
    standing: Journey,
) -> None:
    moments = [1.5 * n / 100 for n in range(100)]

    async def one(moment: float) -> tuple[UUID, str]:
        job = await standing.submit(seconds=0.05, steps=2)
        await asyncio.sleep(moment)
        return job, (await cancel(standing, job))[1]

    answers = dict(await asyncio.gather(*map(one, moments)))
    states = await standing.final(*answers)
    effects = await standing.effects(*answers)

    assert set(states.values()) <= {"canceled", "succeeded"}
    assert {job: int(s == "succeeded") for job, s in states.items()} == effects
    told = {(answers[job], states[job]) for job in answers}
    assert ("canceled", "succeeded") not in told
    assert ("job_final", "canceled") not in told
    assert await late_steps(standing) == 0


async def test_a_thread_goes_on_and_so_does_its_job(standing: Journey) -> None:
    job = await standing.submit("blocking", seconds=1.5)
    await until(lambda: _is(standing, job, "running"), every=0.02)

    assert await cancel(standing, job) == (202, "cancel_requested")
    await asyncio.sleep(0.8)  # longer than the grace
    assert await state(standing, job) == "cancel_requested"

    # It never looked whether it should stop: what it did is done.
    assert await standing.final(job) == {job: "succeeded"}
    assert await standing.effects(job) == {job: 2}


async def _is(ground: Journey, job: UUID, wanted: str) -> bool:
    return await state(ground, job) == wanted


async def test_a_process_is_ended(standing: Journey) -> None:
    job = await standing.submit("killable", seconds=1.9)
    await started(standing, job)

    await cancel(standing, job)

    assert await standing.final(job) == {job: "canceled"}
    assert '"rung": "sigterm"' in await last_event(standing, job)
    assert await standing.effects(job) == {job: 0}


async def test_work_that_ignores_its_cancel_is_fenced_and_has_no_effect(standing: Journey) -> None:
    job = await standing.submit("stubborn", seconds=4)
    await started(standing, job)

    await cancel(standing, job)
    assert await standing.final(job, seconds=20) == {job: "canceled"}
    ended = await standing.executions(job, "ended")
    rungs = await standing.fetch(
        "SELECT data->>'rung' AS rung FROM filaviva.job_events WHERE job_id = $1"
        " AND kind = 'cancel' ORDER BY id",
        job,
    )

    assert ended == 0
    assert [row["rung"] for row in rungs] == ["task", "fenced"]
    await until(lambda: standing.executions(job, "ended"), seconds=15)
    assert await standing.effects(job) == {job: 0}
    assert await state(standing, job) == "canceled"
    assert await standing.now("worker").metric("filaviva_cancel_seconds_count", rung="fenced") == 1


async def test_a_canceled_job_whose_worker_is_killed_is_canceled(standing: Journey) -> None:
    jobs = [await standing.submit(seconds=60) for _ in range(3)]
    for job in jobs:
        await started(standing, job)
    killed = standing.now("worker")

    killed.signal(signal.SIGSTOP)  # it cannot hear
    for job in jobs[:2]:
        await cancel(standing, job)
    killed.kill()
    fresh = standing.start("worker")
    await fresh.ready()

    assert set((await standing.final(*jobs[:2])).values()) == {"canceled"}
    await until(lambda: _is(standing, jobs[2], "running"), seconds=30)
    await cancel(standing, jobs[2])
    assert await standing.final(jobs[2]) == {jobs[2]: "canceled"}
    assert set((await standing.effects(*jobs)).values()) == {0}
