"""Workers that freeze, crash, block, stop and disagree: leases and fences decide."""

import asyncio
import signal
import time
from uuid import UUID

import pytest

from fixtures.amqp import Proxy
from fixtures.journey import Journey
from fixtures.waiting import until

pytestmark = pytest.mark.timeout(180)


async def started(journey: Journey, job: UUID, times: int = 1) -> None:
    async def ran() -> bool:
        return await journey.executions(job) >= times

    await until(ran, seconds=40)


async def outcomes(journey: Journey, job: UUID) -> list[str]:
    rows = await journey.fetch(
        "SELECT outcome FROM filaviva.attempts WHERE job_id = $1 ORDER BY number", job
    )
    return [row["outcome"] for row in rows]


async def test_a_worker_frozen_past_its_lease_writes_nothing_when_it_wakes(
    journey: Journey,
) -> None:
    await journey.start_all()
    job = await journey.submit(seconds=2.5)
    await started(journey, job)
    frozen = journey.now("worker")

    frozen.signal(signal.SIGSTOP)
    second = journey.start("worker")
    await second.ready()
    states = await journey.final(job)
    frozen.signal(signal.SIGCONT)

    async def void() -> bool:
        return await frozen.metric("filaviva_lease_lost_total") >= 1

    assert states == {job: "succeeded"}
    await until(void, seconds=20)
    assert await journey.effects(job) == {job: 1}
    assert await outcomes(journey, job) == ["lost", "succeeded"]


async def test_a_job_that_kills_its_worker_ends_as_poison_and_50_good_ones_succeed(
    journey: Journey,
) -> None:
    await journey.start_all("producer", "retry-scheduler", "dlq-handler")
    poison = await journey.submit(failures=99, error="exit")
    good = await asyncio.gather(*(journey.submit() for _ in range(50)))
    reviving = asyncio.create_task(_revive(journey))

    states = await journey.final(poison, *good, seconds=120)

    reviving.cancel()
    assert states.pop(poison) == "failed"
    assert set(states.values()) == {"succeeded"}
    assert set((await journey.effects(*good)).values()) == {1}
    assert set(await outcomes(journey, poison)) == {"lost"}
    row = await journey.row(poison)
    assert '"lost"' in row["error"]


async def _revive(journey: Journey) -> None:
    journey.start("worker")
    while True:
        await until(lambda: not journey.now("worker").alive, seconds=3600)
        journey.start("worker")


async def test_one_wake_up_100_times_at_two_workers_runs_once(journey: Journey) -> None:
    await journey.start_all("producer", "retry-scheduler")
    job = await journey.submit(seconds=0.5)
    await journey.settled()
    first, second = journey.start("worker"), journey.start("worker")
    await asyncio.gather(first.ready(), second.ready())

    for n in range(100):
        await journey.books.execute(
            "INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data,"
            " locked_until) VALUES ('filaviva.jobs', 'ledger', $1, 'filaviva.wakeup.v1',"
            " jsonb_build_object('jobId', $2::text, 'epoch', 1, 'type', 'ledger.work',"
            " 'version', 1, 'queue', 'ledger'), clock_timestamp())",
            f"{job}:1:{n % 7 + 1}", str(job),
        )  # fmt: skip

    await journey.final(job)
    await journey.settled()
    assert await journey.executions(job) == 1
    assert await journey.effects(job) == {job: 1}


async def test_wake_ups_of_older_epochs_are_stale(journey: Journey) -> None:
    await journey.start_all()
    job = await journey.submit(failures=2)
    await journey.final(job)
    await journey.books.execute(
        "INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, locked_until)"
        " SELECT 'filaviva.jobs', 'ledger', 'late-' || e, 'filaviva.wakeup.v1',"
        " jsonb_build_object('jobId', $1::text, 'epoch', e, 'type', 'ledger.work', 'version', 1,"
        " 'queue', 'ledger'), clock_timestamp() FROM generate_series(1, 9) AS e",
        str(job),
    )

    async def counted() -> bool:
        suppressed = await journey.now("worker").metric("filaviva_duplicates_suppressed_total")
        return suppressed >= 9

    await until(counted, seconds=20)
    assert await outcomes(journey, job) == ["retry", "retry", "succeeded"]
    assert await journey.effects(job) == {job: 1}


async def test_sigterm_lets_short_jobs_end_and_gives_long_ones_back(journey: Journey) -> None:
    await journey.start_all()
    short, long = await journey.submit(seconds=1.5), await journey.submit(seconds=8)
    await asyncio.gather(started(journey, short), started(journey, long))
    leaving = journey.now("worker")

    begun = time.monotonic()
    assert leaving.stop() == 0
    assert time.monotonic() - begun < 10
    assert (await journey.row(short))["state"] == "succeeded"
    assert (await journey.row(long))["state"] == "queued"

    await journey.start_all("worker")
    await journey.final(long)
    assert await outcomes(journey, long) == ["released", "succeeded"]
    assert await journey.effects(short, long) == {short: 1, long: 1}
    assert (await journey.row(long))["failures"] == 0


async def test_one_sigterm_ends_a_worker_whose_database_is_away_or_silent_and_nothing_is_lost(
    journey: Journey,
) -> None:
    await journey.start_all("producer", "retry-scheduler")
    async with Proxy(journey.database) as away, Proxy(journey.database) as silent:
        leaving = [
            journey.start(
                "worker",
                FILAVIVA_POSTGRES__URL=way.url,
                FILAVIVA_WORKER__GRACE_SECONDS="1",
                FILAVIVA_WORKER__CONCURRENCY="1",
            )
            for way in (away, silent)
        ]
        await asyncio.gather(*(worker.ready() for worker in leaving))
        # One runs in each, more wait for their claim or for somebody who reads them.
        jobs = await asyncio.gather(*(journey.submit(seconds=2) for _ in range(4)))
        await asyncio.gather(*(started(journey, job) for job in jobs[:2]))
        silent.silence()
        away.close()

        begun = time.monotonic()
        codes = await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in leaving))
        assert codes == [0, 0]
        assert time.monotonic() - begun < 30

    await journey.start_all("worker")
    assert set((await journey.final(*jobs)).values()) == {"succeeded"}
    assert set((await journey.effects(*jobs)).values()) == {1}


async def test_a_database_away_for_longer_than_the_leases_runs_no_job_twice(
    journey: Journey,
) -> None:
    async with Proxy(journey.database) as way:
        for name in ("producer", "worker", "worker", "retry-scheduler", "dlq-handler"):
            journey.start(name, FILAVIVA_POSTGRES__URL=way.url)
        await asyncio.gather(*(service.ready() for service in journey.all()))
        # Some end while the database is away, some after it is back; none may be begun again.
        short = [await journey.submit(seconds=2) for _ in range(6)]
        long = [await journey.submit(seconds=8) for _ in range(6)]
        await asyncio.gather(*(started(journey, job) for job in (*short, *long)))

        way.close()
        leases = (
            "SELECT count(*) FROM filaviva.jobs WHERE lease_expires_at > now() - interval '2 s'"
        )
        await until(lambda: _none(journey, leases), seconds=30)  # twice the length of a lease
        await way.open()

        states = await journey.final(*short, *long)

    assert set(states.values()) == {"succeeded"}
    for job in (*short, *long):
        assert await outcomes(journey, job) == ["succeeded"]
        assert await journey.executions(job) == 1
    assert set((await journey.effects(*short, *long)).values()) == {1}


async def _none(journey: Journey, count: str) -> bool:
    return await journey.value(count) == 0


async def test_a_second_sigterm_ends_the_worker_at_once(journey: Journey) -> None:
    await journey.start_all()
    job = await journey.submit(seconds=60)
    await started(journey, job)
    worker = journey.now("worker")

    worker.signal(signal.SIGTERM)

    async def stopping() -> bool:
        return not await _has_consumer(journey)

    await until(stopping, seconds=10)
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(3) == 1


async def _has_consumer(journey: Journey) -> bool:
    seen = "SELECT count(*) FROM filaviva.workers WHERE stopped_at IS NULL"
    return await journey.value(seen) > 0 and journey.now("worker").alive


async def test_a_handler_that_blocks_the_loop_loses_its_job_but_not_its_neighbours(
    journey: Journey,
) -> None:
    await journey.start_all()
    blocked = await journey.submit(failures=1, error="block")
    await started(journey, blocked)
    other = journey.start("worker")
    await other.ready()
    jobs = await asyncio.gather(*(journey.submit() for _ in range(10)))

    states = await journey.final(*jobs, seconds=30)

    assert set(states.values()) == {"succeeded"}
    # Its lease is renewed by a thread of its own until its time is over; then somebody else may.
    assert (await journey.row(blocked))["state"] == "running"
    journey.services["worker"][0].kill()
    assert await journey.final(blocked) == {blocked: "succeeded"}
    assert await outcomes(journey, blocked) == ["lost", "succeeded"]


async def test_a_timeout_is_an_attempt_with_that_class(journey: Journey) -> None:
    await journey.start_all()
    job = await journey.submit("slow", seconds=30)

    assert await journey.final(job) == {job: "failed"}

    classes = await journey.fetch(
        "SELECT error_class FROM filaviva.attempts WHERE job_id = $1 ORDER BY number", job
    )
    assert [row["error_class"] for row in classes] == ["timeout"] * 3
    assert await journey.effects(job) == {job: 0}


async def test_a_blocking_handler_has_every_name_of_the_context(journey: Journey) -> None:
    await journey.start_all()
    threaded, processed = await journey.submit("blocking"), await journey.submit("killable")

    await journey.final(threaded, processed)

    assert (await journey.row(threaded))["result"] == '"42 in main"'
    assert (await journey.row(processed))["result"].startswith('"42 pid ')
    assert "secret False" in (await journey.row(processed))["result"]
    assert await journey.effects(threaded, processed) == {threaded: 2, processed: 2}
    steps = await journey.fetch("SELECT name, state, output FROM filaviva.steps")
    assert {tuple(step) for step in steps} == {("double", "succeeded", "42")}


async def test_a_process_that_takes_too_long_or_crashes_is_ended_and_tried_again(
    journey: Journey,
) -> None:
    await journey.start_all()
    slow, crashing = (
        await journey.submit("killable", seconds=30),
        await journey.submit("killable", crash=True),
    )

    states = await journey.final(slow, crashing, seconds=60)

    assert states == {slow: "failed", crashing: "succeeded"}
    first = await journey.fetch(
        "SELECT error_class, error_message FROM filaviva.attempts"
        " WHERE job_id = $1 AND number = 1", crashing,
    )  # fmt: skip
    assert first[0]["error_class"] == "unexpected"
    assert "SIGSEGV" in first[0]["error_message"]
    timed_out = await journey.fetch(
        "SELECT error_class FROM filaviva.attempts WHERE job_id = $1 ORDER BY number", slow
    )
    assert [row["error_class"] for row in timed_out] == ["timeout", "timeout"]
    assert await journey.effects(slow, crashing) == {slow: 0, crashing: 2}


async def test_a_killed_worker_takes_its_process_handlers_with_it(journey: Journey) -> None:
    await journey.start_all()
    job = await journey.submit("killable", seconds=1.5)
    await started(journey, job)

    journey.now("worker").kill()
    await journey.start_all("worker")

    assert await journey.final(job) == {job: "succeeded"}
    assert await journey.effects(job) == {job: 2}


async def test_the_scheduler_away_for_long_loses_nothing(journey: Journey) -> None:
    await journey.start_all("producer", "worker")
    jobs = await asyncio.gather(*(journey.submit(failures=1) for _ in range(30)))

    async def all_failed_once() -> bool:
        return (
            await journey.value("SELECT count(*) FROM filaviva.attempts WHERE outcome = 'retry'")
            == 30
        )

    await until(all_failed_once, seconds=40)
    # As if an hour had gone by: what was due is long overdue, every lease has run out.
    await journey.books.execute(
        "UPDATE filaviva.jobs SET lease_expires_at = lease_expires_at - interval '1 hour'"
    )
    await journey.books.execute(
        "UPDATE filaviva.attempts SET finished_at = finished_at - interval '1 hour'"
    )
    await journey.start_all("retry-scheduler")

    assert set((await journey.final(*jobs)).values()) == {"succeeded"}
    assert set((await journey.effects(*jobs)).values()) == {1}
    for job in jobs:
        assert await outcomes(journey, job) == ["retry", "succeeded"]
