"""The sweeper: what nobody else will do, on a real database."""

import asyncio
from uuid import UUID

import pytest

from filaviva.database import connect
from filaviva_retry_scheduler.facts import AttemptLost, CancelFenced, JobEnded, WakeUpReissued
from filaviva_retry_scheduler.presence import Presence
from filaviva_retry_scheduler.sweeper import Sweeper
from fixtures.retrying import Clock, Jobs, Steady, Told

READS_1 = """'[{"type": "invoice.extract", "min": 1, "max": 1}]'"""
READS_2 = """'[{"type": "invoice.extract", "min": 1, "max": 2}]'"""


def sweeper_of(jobs: Jobs, told: Told, presence: Presence | None = None, **pace: float) -> Sweeper:
    presence = presence or Steady()
    return Sweeper(jobs.engine, told.announcer, lease_seconds=15, presence=presence, **pace)  # type: ignore[arg-type]


@pytest.fixture
def sweeper(jobs: Jobs, told: Told) -> Sweeper:
    return sweeper_of(jobs, told)


async def test_a_job_whose_worker_is_gone_is_queued_again(
    jobs: Jobs, told: Told, sweeper: Sweeper
) -> None:
    gone, alive = await jobs.running(lease="-1 s"), await jobs.running()

    assert await sweeper.step() == 1

    assert (await jobs.row(gone))["state"] == "queued"
    assert (await jobs.row(alive))["state"] == "running"
    assert told.of(AttemptLost) == [AttemptLost(gone, "invoice.extract")]
    assert [row.job_id for row in told.rows] == [gone]
    assert told.changed == {gone}


async def test_a_canceled_job_whose_worker_is_gone_is_canceled(
    jobs: Jobs, sweeper: Sweeper, told: Told
) -> None:
    asked = "clock_timestamp() - interval '5 s'"
    job = await jobs.running(lease="-1 s", state="'cancel_requested'", cancel_requested_at=asked)

    await sweeper.step()

    assert (await jobs.row(job))["state"] == "canceled"
    (fenced,) = told.of(CancelFenced)
    assert fenced.seconds >= 5
    assert (await jobs.events(job))[-1][1]["rung"] == "fenced"


async def test_a_failure_that_the_scheduler_never_heard_of_keeps_its_pause_and_its_limit(
    jobs: Jobs, sweeper: Sweeper
) -> None:
    retry = await jobs.failing(lease="-1 s", failures=1)
    last = await jobs.failing(lease="-1 s", failures=4)

    await sweeper.step()

    row = await jobs.row(retry)
    assert (row["state"], row["failures"], row["losses"]) == ("queued", 2, 0)
    assert row["not_before"] > row["now"]
    assert (await jobs.row(last))["state"] == "failed"


async def test_no_lease_is_freed_right_after_an_outage(jobs: Jobs, told: Told) -> None:
    clock = Clock()
    sweeper = sweeper_of(jobs, told, Presence(lease_seconds=15, clock=clock))
    job = await jobs.running(lease="-60 s")

    while clock.now < 1020:
        assert await sweeper.step() == 0
        clock.now += 1
    assert (await jobs.row(job))["state"] == "running"

    assert await sweeper.step() == 1


async def test_a_database_that_does_not_answer_is_a_gap_and_not_the_end(
    jobs: Jobs, told: Told
) -> None:
    clock = Clock()
    presence = Presence(lease_seconds=15, clock=clock)
    sweeper = sweeper_of(jobs, told, presence)
    for _ in range(30):
        clock.now += 1
        await sweeper.step()
    assert presence.steady
    nowhere = connect("postgresql://nobody@127.0.0.1:1/none", name="test")

    absent = Sweeper(nowhere, told.announcer, lease_seconds=15, presence=presence)
    assert await absent.step() == 0

    assert not presence.steady
    await nowhere.dispose()


async def test_more_than_a_batch_is_freed_batch_by_batch(jobs: Jobs, told: Told) -> None:
    sweeper = sweeper_of(jobs, told, batch=2)
    for _ in range(5):
        await jobs.running(lease="-1 s")

    assert [await sweeper.step() for _ in range(4)] == [2, 2, 1, 0]


async def test_one_job_that_cannot_be_decided_does_not_keep_the_others(
    jobs: Jobs, sweeper: Sweeper
) -> None:
    await jobs.policy(base=2, cap=300, jitter=1)
    good = [await jobs.running(lease="-1 s") for _ in range(3)]
    bad = await jobs.failing(lease="-2 s", type="'other'")
    await jobs.all(
        "INSERT INTO filaviva.contracts (type, version, app, schema, policy)"
        """ VALUES ('other', 1, 'shop', '{}', '{"base": "nonsense"}')"""
    )

    assert await sweeper.step() == 3

    assert {(await jobs.row(job))["state"] for job in good} == {"queued"}
    assert (await jobs.row(bad))["state"] == "running"


async def test_many_sweepers_and_a_renewed_heartbeat_change_each_job_once(
    jobs: Jobs, told: Told
) -> None:
    gone = [await jobs.running(lease="-1 s") for _ in range(30)]
    sweepers = [sweeper_of(jobs, told, batch=7) for _ in range(6)]

    async def sweep(sweeper: Sweeper) -> int:
        return sum([await sweeper.step() for _ in range(6)])

    async def renew() -> set[UUID]:
        renewed = await jobs.all(
            "WITH mine AS (SELECT id FROM filaviva.jobs WHERE fence = 1 AND state = 'running'"
            " ORDER BY id LIMIT 5 FOR NO KEY UPDATE SKIP LOCKED)"
            " UPDATE filaviva.jobs SET lease_expires_at = clock_timestamp() + interval '15 s'"
            " FROM mine WHERE jobs.id = mine.id RETURNING jobs.id"
        )
        return {row["id"] for row in renewed}

    renewed, *_ = await asyncio.gather(renew(), *map(sweep, sweepers))
    while await sweepers[0].step():
        pass

    rows = {job: await jobs.row(job) for job in gone}
    assert {job for job, row in rows.items() if row["state"] == "running"} == renewed
    assert {row["fence"] for row in rows.values() if row["state"] == "queued"} == {2}
    assert len(told.rows) == len(gone) - len(renewed)


async def test_a_queued_job_past_its_deadline_fails_as_expired(
    jobs: Jobs, told: Told, sweeper: Sweeper
) -> None:
    late = await jobs.queued(deadline="now() - interval '1 s'", epoch=3)
    parked = await jobs.queued(deadline="now() - interval '1 s'", parked_reason="'queue_missing'")
    waiting = await jobs.queued(deadline="now() + interval '1 hour'")
    running = await jobs.running(deadline="now() - interval '1 s'")

    assert await sweeper.step() == 2

    row, (message,) = await jobs.row(late), await jobs.outbox(late)
    assert (row["state"], row["epoch"], row["error"]["code"]) == ("failed", 3, "DeadlineExpired")
    assert row["finished_at"] is not None
    assert message["exchange"] == "filaviva.dead"
    assert message["message_id"] == f"{late}:dead:3"
    assert message["data"] == {"jobId": str(late), "epoch": 3, "reason": "expired"}
    assert (await jobs.events(late))[0][1]["reason"] == "expired"
    assert (await jobs.row(parked))["parked_reason"] is None
    assert (await jobs.row(waiting))["state"] == "queued"
    assert (await jobs.row(running))["state"] == "running"
    assert {fact.reason for fact in told.of(JobEnded) if isinstance(fact, JobEnded)} == {"expired"}


async def test_a_job_from_the_future_wakes_when_a_live_worker_reads_it(
    jobs: Jobs, told: Told, sweeper: Sweeper
) -> None:
    job = await jobs.queued(version=2, parked_reason="'unsupported_version'", epoch=4, issue=3)
    await jobs.worker(queues="'{llm}'", reads=READS_1)
    assert await sweeper.step() == 0

    await jobs.worker(id="'w2'", queues="'{llm}'", reads=READS_2)
    assert await sweeper.step() == 1

    row, (message,) = await jobs.row(job), await jobs.outbox(job)
    assert (row["state"], row["parked_reason"], row["epoch"]) == ("queued", None, 5)
    assert message["message_id"] == f"{job}:5:1"
    assert told.facts == [WakeUpReissued(job, "unsupported_version")]
    assert await sweeper.step() == 0


@pytest.mark.parametrize(
    "worker",
    [
        {"queues": "'{mail}'"},
        {"queues": "'{llm}'", "stopped_at": "now()"},
        {"queues": "'{llm}'", "last_seen_at": "now() - interval '1 min'"},
    ],
    ids=["another queue", "stopped", "not seen lately"],
)
async def test_a_worker_that_cannot_take_it_wakes_no_job(
    jobs: Jobs, sweeper: Sweeper, worker: dict[str, str]
) -> None:
    job = await jobs.queued(version=2, parked_reason="'unsupported_version'")
    await jobs.worker(reads=READS_2, **worker)

    assert await sweeper.step() == 0

    assert (await jobs.row(job))["parked_reason"] == "unsupported_version"


async def test_the_sweeper_ends_when_it_is_asked_to(sweeper: Sweeper) -> None:
    stop = asyncio.Event()
    sweeping = asyncio.create_task(sweeper.run(stop))

    stop.set()

    await asyncio.wait_for(sweeping, 5)
