"""Heartbeat: what is alive here keeps its leases, whatever the event loop or the database does."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from filaviva.database import connect, migrate
from filaviva.dev import EmbeddedPostgres
from filaviva_worker.cancels import Cancels
from filaviva_worker.heartbeat import Heartbeat, Presence
from filaviva_worker.lately import Lately
from filaviva_worker.live import Ending, Live, LiveJobs
from fixtures.amqp import Proxy
from fixtures.retrying import Jobs
from fixtures.waiting import until

LEASE = 1.5


def no_marks() -> dict[str, float]:
    return {}


class Beating:
    """A heartbeat that runs, and the jobs that it keeps alive."""

    def __init__(
        self,
        url: str,
        *,
        lease: float,
        watermarks: Callable[[], dict[str, float]],
        lately: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.live = LiveJobs()
        presence = Presence("w1", "shop", ("llm",), [{"type": "a.b", "min": 1, "max": 2}], 4)
        self.heart = Heartbeat(
            url,
            self.live,
            presence,
            lease_seconds=lease,
            watermarks=watermarks,
            lately=lately,
        )

    def alive(self, job: UUID, fence: int = 1, *, renew_until: float = math.inf) -> Live:
        live = Live(job, fence, renew_until)
        self.live.add(live)
        return live


@asynccontextmanager
async def beating(
    url: str,
    *,
    lease: float = LEASE,
    watermarks: Callable[[], dict[str, float]] = no_marks,
    lately: Callable[[], Mapping[str, Any]] = dict,
) -> AsyncIterator[Beating]:
    it = Beating(url, lease=lease, watermarks=watermarks, lately=lately)
    stop = asyncio.Event()
    running = asyncio.create_task(it.heart.run(stop))
    try:
        yield it
    finally:
        stop.set()
        await running


async def left(jobs: Jobs, job: UUID) -> float:
    """Seconds until the lease ends, by the database's clock."""
    row = await jobs.row(job)
    return float((row["lease_expires_at"] - row["now"]).total_seconds())


async def renewed(jobs: Jobs, *several: UUID, beyond: float = LEASE / 2) -> None:
    for job in several:

        async def long_enough(job: UUID = job) -> bool:
            return await left(jobs, job) > beyond

        await until(long_enough)


async def beats(jobs: Jobs, times: int = 2) -> None:
    """Wait until the heart has beaten so often from now on."""
    for _ in range(times):
        before = (await jobs.all("SELECT last_seen_at FROM filaviva.workers") or [None])[0]

        async def again(before: Any = before) -> bool:
            now = (await jobs.all("SELECT last_seen_at FROM filaviva.workers") or [None])[0]
            return now is not None and now != before

        await until(again)


@pytest.mark.parametrize("state", ["running", "cancel_requested"])
async def test_a_live_job_keeps_its_lease_in_both_states_of_work(
    database: str, jobs: Jobs, state: str
) -> None:
    job = await jobs.running(lease="0.3 s", state=f"'{state}'")

    async with beating(database) as it:
        it.alive(job)
        await renewed(jobs, job)


async def test_a_job_that_is_not_live_here_is_not_renewed(database: str, jobs: Jobs) -> None:
    # It has our name in it, and still: only what really runs here has a right to its lease.
    live, forgotten = await jobs.running(), await jobs.running(lease_owner="'w1'")
    before = (await jobs.row(forgotten))["lease_expires_at"]

    async with beating(database) as it:
        it.alive(live)
        await beats(jobs)

    assert (await jobs.row(forgotten))["lease_expires_at"] == before


@pytest.mark.parametrize("state", ["queued", "succeeded", "failed", "canceled"])
async def test_a_job_in_another_state_is_lost_even_with_our_fence(
    database: str, jobs: Jobs, state: str
) -> None:
    job = await jobs.queued(state=f"'{state}'", fence=1)

    async with beating(database) as it:
        live = it.alive(job, fence=1)
        await until(lambda: live.ending)

    assert live.ending is Ending.LOST
    assert (await jobs.row(job))["lease_expires_at"] is None


async def test_a_job_under_another_fence_is_lost_and_its_new_lease_is_left_alone(
    database: str, jobs: Jobs
) -> None:
    job = await jobs.running(fence=3, lease="60 s")
    before = (await jobs.row(job))["lease_expires_at"]

    async with beating(database) as it:
        live = it.alive(job, fence=2)
        await until(lambda: live.ending)

    assert live.ending is Ending.LOST
    assert (await jobs.row(job))["lease_expires_at"] == before


async def test_a_cancel_reaches_the_work_and_the_lease_goes_on_until_it_has_stopped(
    database: str, jobs: Jobs
) -> None:
    job = await jobs.running(lease="0.3 s")

    async with beating(database) as it:
        live = it.alive(job)
        live.task = asyncio.create_task(asyncio.sleep(60))
        await renewed(jobs, job)
        await jobs.all("UPDATE filaviva.jobs SET state = 'cancel_requested'")
        await until(live.task.cancelled)
        await beats(jobs)

    assert live.ending is Ending.CANCELED
    assert await left(jobs, job) > 0


async def test_a_row_that_somebody_holds_is_skipped_and_not_lost_and_its_neighbours_are_renewed(
    database: str, jobs: Jobs
) -> None:
    held, free = await jobs.running(lease="0.3 s"), await jobs.running(lease="0.3 s")

    async with beating(database) as it:
        blocked, other = it.alive(held), it.alive(free)
        async with jobs.engine.begin() as connection:
            await connection.execute(
                text("SELECT 1 FROM filaviva.jobs WHERE id = :id FOR NO KEY UPDATE"), {"id": held}
            )
            await renewed(jobs, free)
            await beats(jobs)
            assert (blocked.ending, other.ending) == (None, None)
            assert it.heart.fresh
        await renewed(jobs, held)


async def test_a_lease_that_has_run_out_but_was_not_swept_is_renewed(
    database: str, jobs: Jobs
) -> None:
    job = await jobs.running(lease="-60 s")

    async with beating(database) as it:
        live = it.alive(job)
        await renewed(jobs, job)

    assert live.ending is None


async def test_a_job_past_its_time_is_not_renewed_any_more(database: str, jobs: Jobs) -> None:
    stuck, other = await jobs.running(lease="60 s"), await jobs.running(lease="0.1 s")

    async with beating(database) as it:
        it.alive(stuck, renew_until=time.monotonic() - 1)
        it.alive(other)
        await renewed(jobs, other)

    assert await left(jobs, stuck) > 50  # a renewal would have made it short


async def test_leases_go_on_while_the_event_loop_is_blocked(database: str, jobs: Jobs) -> None:
    job = await jobs.running(lease="0.3 s")

    async with beating(database) as it:
        it.alive(job)
        await renewed(jobs, job)
        time.sleep(2 * LEASE)  # noqa: ASYNC251 - this loop is blocked for longer than a lease
        assert await left(jobs, job) > 0
        assert it.heart.fresh
        assert LEASE / 4 < it.heart.gaps.value < LEASE  # what the list for production looks at


async def test_a_connection_that_is_cut_is_made_again(database: str, jobs: Jobs) -> None:
    job = await jobs.running(lease="0.3 s")

    async with beating(database) as it:
        live = it.alive(job)
        await renewed(jobs, job)
        (cut,) = await jobs.all(
            "SELECT pg_terminate_backend(pid) AS done FROM pg_stat_activity"
            " WHERE application_name = 'filaviva-heartbeat' AND datname = current_database()"
        )
        await jobs.all("UPDATE filaviva.jobs SET lease_expires_at = clock_timestamp()")
        await renewed(jobs, job)

    assert cut["done"]
    assert live.ending is None


async def test_a_silent_database_makes_the_heart_stale_until_it_answers_again(
    database: str, jobs: Jobs
) -> None:
    job = await jobs.running()

    async with Proxy(database) as way, beating(way.url) as it:
        it.alive(job)
        await beats(jobs)
        way.silence()
        await until(lambda: not it.heart.fresh)
        way.cut()
        assert it.live.get(job).ending is None  # who cannot ask does not know
        way.resume()
        await until(lambda: it.heart.fresh)
        await renewed(jobs, job)
        assert it.heart.gaps.value < LEASE  # nobody frees a lease for a database that was away


async def test_an_answer_that_comes_late_does_not_make_the_heart_fresh(
    database: str, jobs: Jobs
) -> None:
    # The lease counts from when it was written, not from when we came to hear of it.
    job = await jobs.running()
    await jobs.all(
        "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN PERFORM pg_sleep({1.2 * LEASE}); RETURN NULL; END$$"
    )

    async with beating(database) as it:
        it.alive(job)
        await beats(jobs)
        await jobs.all(
            "CREATE TRIGGER late AFTER UPDATE ON filaviva.jobs FOR EACH ROW EXECUTE FUNCTION late()"
        )
        await until(lambda: not it.heart.fresh)
        answered = asyncio.create_task(beats(jobs))
        while not answered.done():
            assert not it.heart.fresh
            await asyncio.wait({answered}, timeout=0.01)
        await answered
        await until(lambda: it.heart.gaps.value > 1.2 * LEASE)


async def test_a_stopped_database_ends_nothing_and_the_next_start_renews(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    try:
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(migrate, server.url)
        engine = connect(server.url, name="test", size=2)
        jobs = Jobs(engine)
        job = await jobs.running()
        async with beating(server.url) as it:
            live = it.alive(job)
            await beats(jobs)
            await asyncio.to_thread(server.kill)
            await engine.dispose()
            await until(lambda: not it.heart.fresh)
            await asyncio.to_thread(server.start)
            await until(lambda: it.heart.fresh)
            await renewed(jobs, job)
            assert live.ending is None
        await engine.dispose()
    finally:
        await asyncio.to_thread(server.kill)


async def test_the_worker_is_seen_with_what_it_reads_and_how_far_it_has_come(
    database: str, jobs: Jobs
) -> None:
    async with beating(database, watermarks=lambda: {"llm/4": 1_700_000_000.5}) as it:
        it.alive(await jobs.running())
        await beats(jobs)
        row = await jobs.one("SELECT * FROM filaviva.workers")

    assert (row["id"], row["service"], row["app"], row["queues"]) == (
        "w1",
        "worker",
        "shop",
        ["llm"],
    )
    assert (row["slots"], row["busy"], row["stopped_at"]) == (4, 1, None)
    assert row["reads"] == [{"type": "a.b", "min": 1, "max": 2}]
    assert row["watermarks"] == {"llm/4": "2023-11-14T22:13:20.500000+00:00"}
    gone = await jobs.one("SELECT * FROM filaviva.workers")
    assert gone["stopped_at"] is not None
    assert gone["busy"] == 0


async def test_a_url_with_options_of_libpq_is_understood(database: str, jobs: Jobs) -> None:
    job = await jobs.running(lease="0.3 s")

    async with beating(f"{database}?connect_timeout=7&application_name=mine&sslmode=prefer") as it:
        it.alive(job)
        await renewed(jobs, job)


async def test_a_heart_that_dies_ends_the_worker_instead_of_every_lease(database: str) -> None:
    def broken() -> dict[str, float]:
        raise ZeroDivisionError

    it = Beating(database, lease=LEASE, watermarks=broken)

    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(20):
            await it.heart.run(asyncio.Event())


async def test_a_heart_that_is_hurried_finds_what_nobody_told(database: str, jobs: Jobs) -> None:
    job = await jobs.running()

    async with beating(database, lease=300) as it:
        cancels = Cancels(it.live, it.heart.hurry)
        live = it.alive(job)
        await beats(jobs, 1)  # the next one is due in 100 s
        await jobs.all("UPDATE filaviva.jobs SET state = 'cancel_requested'")
        cancels.heard(None)  # as after a lost connection
        await until(lambda: live.ending)

    assert live.ending is Ending.CANCELED


async def test_a_notification_names_jobs_and_fences_and_nonsense_is_passed_over() -> None:
    live, hurried = LiveJobs(), list[int]()
    cancels = Cancels(live, lambda: hurried.append(1))
    mine, other = Live(UUID(int=1), 3, math.inf), Live(UUID(int=2), 3, math.inf)
    live.add(mine)
    live.add(other)

    for payload in ("nonsense", f"{mine.job_id}:3,{other.job_id}:2", "*"):
        cancels.heard(payload)

    assert (mine.ending, other.ending) == (Ending.CANCELED, None)
    assert hurried == [1]


async def test_a_heart_whose_connection_the_server_ends_goes_on_with_another(
    database: str, jobs: Jobs
) -> None:
    """At every moment of the connection's life: idle, and with a statement on its way."""
    job = await jobs.running(lease="60 s")
    ends = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'filaviva-heartbeat' AND datname = current_database()"
    )

    async with beating(database) as it:
        it.alive(job)
        for _ in range(5):
            await beats(jobs, 1)
            await jobs.all(ends)
            it.heart.hurry()
        await beats(jobs)


async def test_the_others_see_what_was_done_lately_and_that_it_only_ends_what_runs(
    database: str, jobs: Jobs
) -> None:
    lately = Lately()
    tally = lately.of("llm")

    async with beating(database, lately=lately.shown) as it:
        await beats(jobs, 1)
        tally.started("a.b")
        tally.ended("a.b", "succeeded", 0.5)
        it.heart.hurry()

        async def told() -> bool:
            (seen,) = await jobs.all("SELECT lately FROM filaviva.workers")
            done = {"queue": "llm", "type": "a.b", "started": 1, "succeeded": 1, "costUsd": 0.5}
            return bool(seen["lately"]["work"] == [done])

        await until(told)
        (seen,) = await jobs.all("SELECT draining_at FROM filaviva.workers")
        assert seen["draining_at"] is None
        it.heart.drain()

        async def drains() -> bool:
            (seen,) = await jobs.all("SELECT draining_at FROM filaviva.workers")
            return seen["draining_at"] is not None

        await until(drains)
