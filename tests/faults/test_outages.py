"""The broker and the database are killed, frozen, cut off and wiped in mid-flow."""

import asyncio
import os
import signal
from uuid import UUID

import pytest

from fixtures.journey import Journey
from fixtures.lone import Lone
from fixtures.waiting import until

pytestmark = pytest.mark.timeout(240)


async def fleet(journey: Journey, count: int, **content: object) -> list[UUID]:
    """Submit many jobs at once."""
    return list(await asyncio.gather(*(journey.submit(**content) for _ in range(count))))


async def some_done(journey: Journey, count: int) -> None:
    """Wait until the flow is in its middle."""
    done = "SELECT count(*) FROM filaviva.jobs WHERE state = 'succeeded'"

    async def reached() -> bool:
        return await journey.value(done) >= count

    await until(reached, seconds=60)


async def all_once(journey: Journey, jobs: list[UUID], *, seconds: float = 120) -> None:
    """Every job succeeded and had its effect once; nothing is left on its way."""
    states = await journey.final(*jobs, seconds=seconds)
    assert set(states.values()) == {"succeeded"}
    assert set((await journey.effects(*jobs)).values()) == {1}
    await journey.settled()


async def test_the_broker_killed_in_mid_flow_loses_nothing(lone: Lone) -> None:
    journey = lone.journey
    await journey.start_all()
    first = await fleet(journey, 60, seconds=0.2)
    await some_done(journey, 5)

    lone.broker.kill()
    second = await fleet(journey, 20, failures=1)
    await lone.broker_again()

    await all_once(journey, first + second)


async def test_postgresql_killed_in_mid_flow_loses_nothing(lone: Lone) -> None:
    journey = lone.journey
    await journey.start_all()
    first = await fleet(journey, 60, seconds=0.2)
    await some_done(journey, 5)

    lone.postgres.kill()
    submitting = asyncio.create_task(fleet(journey, 20, failures=1))
    await lone.postgres_again()

    await all_once(journey, first + await submitting)


async def test_what_was_paid_for_outlives_an_outage_of_postgresql_and_costs_no_attempt(
    lone: Lone,
) -> None:
    journey = lone.journey
    await journey.start_all()
    jobs = await fleet(journey, 10, kind="paid", seconds=1)
    asked = "SELECT count(*) FROM ledger.executions WHERE what = 'asked'"

    async def all_asked() -> bool:
        return await journey.value(asked) == len(jobs)

    await until(all_asked, seconds=60)

    lone.postgres.kill()
    # A lease is 2 s, and the heart beats every two thirds of one: every lease is over by then.
    log = journey.now("worker").log
    await until(lambda: log.read_text().count("heartbeat failed") >= 6, seconds=60)
    await lone.postgres_again()

    await all_once(journey, jobs)
    assert await journey.value(asked) == len(jobs)
    spent = await journey.fetch("SELECT DISTINCT attempt, failures, losses FROM filaviva.jobs")
    assert [tuple(row) for row in spent] == [(1, 0, 0)]


async def test_the_wiped_broker_comes_back_and_every_waiting_job_ends(lone: Lone) -> None:
    journey = lone.journey
    pause = 'UPDATE filaviva.contracts SET policy = policy || \'{"base": 15, "cap": 15}\''
    await journey.books.execute(pause)
    await journey.start_all("producer", "retry-scheduler", "dlq-handler")
    paused = await fleet(journey, 200, failures=1)
    await journey.start_all("worker")

    async def all_paused() -> bool:
        return (
            await journey.value(
                "SELECT count(*) FROM filaviva.jobs WHERE state = 'queued' AND attempt = 1"
            )
            == 200
        )

    await until(all_paused, seconds=60)
    journey.now("worker").kill()
    waiting = await fleet(journey, 800)
    await journey.settled()

    await asyncio.to_thread(lone.broker.wipe)
    await journey.start_all("worker")

    await all_once(journey, paused + waiting, seconds=180)


async def test_a_frozen_broker_costs_nothing_but_time(lone: Lone) -> None:
    journey = lone.journey
    await journey.start_all()
    jobs = await fleet(journey, 20, seconds=0.1)
    await some_done(journey, 2)

    os.kill(lone.broker.pid, signal.SIGSTOP)
    try:
        more = await fleet(journey, 10)
        # Longer than the heartbeat's patience: publishes end unknown, consumers are cut off.
        await until(lambda: _unready(journey), seconds=60, every=0.5)
    finally:
        os.kill(lone.broker.pid, signal.SIGCONT)

    await all_once(journey, jobs + more)


async def _unready(journey: Journey) -> bool:
    answer = await journey.call("producer", "GET", "/readyz")
    return answer.status_code == 503


async def test_every_connection_reset_loses_nothing(lone: Lone) -> None:
    journey = lone.journey
    await journey.start_all()
    jobs = await fleet(journey, 60, seconds=0.3)

    for done in (5, 20, 35):
        await some_done(journey, done)
        await asyncio.to_thread(lone.broker.ctl, "close_all_connections", "a test")

    await all_once(journey, jobs)


async def test_every_database_session_cut_loses_nothing(lone: Lone) -> None:
    journey = lone.journey
    await journey.start_all()
    jobs = await fleet(journey, 60, seconds=0.3, failures=1)

    for done in (1, 10, 20, 30, 40):
        await some_done(journey, done)
        await journey.books.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )

    await all_once(journey, jobs)


@pytest.mark.parametrize("alarm", ["memory", "disk"])
async def test_an_alarm_blocks_nobody_who_submits_and_ends_well(lone: Lone, alarm: str) -> None:
    journey = lone.journey
    await journey.start_all()
    before = await fleet(journey, 5)
    await journey.final(*before)
    set_it, clear_it = {
        "memory": (
            ("set_vm_memory_high_watermark", "absolute", "1"),
            ("set_vm_memory_high_watermark", "0.6"),
        ),
        "disk": (("set_disk_free_limit", "100000GB"), ("set_disk_free_limit", "50MB")),
    }[alarm]

    await asyncio.to_thread(lone.broker.ctl, *set_it)
    during = await fleet(journey, 10)
    await until(lambda: _unready(journey), seconds=60, every=0.5)
    await asyncio.to_thread(lone.broker.ctl, *clear_it)

    await all_once(journey, before + during)


async def test_a_stopped_and_started_broker_application_is_survived(lone: Lone) -> None:
    journey = lone.journey
    await journey.start_all()
    jobs = await fleet(journey, 40, seconds=0.2)
    await some_done(journey, 3)

    await asyncio.to_thread(lone.broker.ctl, "stop_app")
    await asyncio.to_thread(lone.broker.ctl, "start_app")

    await all_once(journey, jobs)


async def test_a_deleted_queue_and_a_removed_binding_come_back(lone: Lone) -> None:
    journey = lone.journey
    await journey.start_all()
    await journey.final(await journey.submit())

    await asyncio.to_thread(lone.broker.ctl, "delete_queue", "filaviva.work.ledger")
    homeless = await fleet(journey, 10)

    async def parked() -> bool:
        return bool(
            await journey.value("SELECT count(*) FROM filaviva.outbox WHERE error IS NOT NULL")
        )

    await until(parked, seconds=30)
    await journey.set_up()
    await journey.books.execute("UPDATE filaviva.outbox SET locked_until = clock_timestamp()")

    await all_once(journey, homeless)
