"""The reconciler: wake-ups and dead letters that were lost, on a real database."""

import asyncio
from uuid import UUID

import pytest

from filaviva_retry_scheduler.facts import DeadLetterRepublished, WakeUpReissued
from filaviva_retry_scheduler.reconciler import Reconciler
from fixtures.retrying import Clock, Jobs, KnownDepths, Told

OLD = "now() - interval '2 min'"


def reconciler_of(jobs: Jobs, told: Told, depths: KnownDepths, **pace: int) -> Reconciler:
    return Reconciler(jobs.engine, depths, told.announcer, clock=Clock(), **pace)


@pytest.fixture
def depths() -> KnownDepths:
    return KnownDepths(llm=0)


@pytest.fixture
def reconciler(jobs: Jobs, told: Told, depths: KnownDepths) -> Reconciler:
    return reconciler_of(jobs, told, depths)


async def test_a_job_that_nothing_will_wake_gets_its_wake_up_again_under_the_same_epoch(
    jobs: Jobs, told: Told, reconciler: Reconciler
) -> None:
    job = await jobs.queued(queued_at=OLD, epoch=3)

    assert await reconciler.step() == 1

    row, (message,) = await jobs.row(job), await jobs.outbox(job)
    assert (row["epoch"], row["issue"], row["state"]) == (3, 2, "queued")
    assert message["message_id"] == f"{job}:3:2"
    assert told.facts == [WakeUpReissued(job, "lost")]
    assert [row.message_id for row in told.rows] == [f"{job}:3:2"]


@pytest.mark.parametrize(
    "columns",
    [
        {"queued_at": "now() - interval '50 s'"},
        {"queued_at": OLD, "not_before": "now() - interval '50 s'"},
        {"queued_at": OLD, "not_before": "now() + interval '1 hour'"},
        {"queued_at": OLD, "parked_reason": "'unsupported_version'"},
        {"queued_at": OLD, "state": "'canceled'"},
    ],
    ids=["just queued", "just due", "in its pause", "parked", "not queued"],
)
async def test_a_job_that_may_still_be_woken_is_left_alone(
    jobs: Jobs, reconciler: Reconciler, columns: dict[str, str]
) -> None:
    job = await jobs.queued(**columns)

    assert await reconciler.step() == 0

    assert await jobs.outbox(job) == []


async def test_a_wake_up_that_has_not_left_yet_is_not_lost(
    jobs: Jobs, reconciler: Reconciler
) -> None:
    job = await jobs.queued(queued_at=OLD)
    await reconciler.step()
    await jobs.all("UPDATE filaviva.jobs SET reissued_at = NULL")

    assert await reconciler.step() == 0

    assert len(await jobs.outbox(job)) == 1


async def test_an_outbox_row_of_an_earlier_epoch_does_not_count(
    jobs: Jobs, reconciler: Reconciler
) -> None:
    job = await jobs.queued(queued_at=OLD)
    await reconciler.step()
    await jobs.all("UPDATE filaviva.jobs SET reissued_at = NULL, epoch = 2")

    assert await reconciler.step() == 1

    assert len(await jobs.outbox(job)) == 2


async def test_nothing_is_issued_while_messages_are_ready_on_the_queue(
    jobs: Jobs, depths: KnownDepths, reconciler: Reconciler
) -> None:
    await jobs.queued(queued_at="now() - interval '3 hours'")
    depths.ready_on = {"llm": 1}

    assert await reconciler.step() == 0


@pytest.mark.parametrize(
    ("due", "issued"),
    [("now() - interval '16 min'", 1), ("now() - interval '14 min'", 0)],
    ids=["workers are past it", "its turn may come"],
)
async def test_a_job_that_workers_have_passed_by_five_minutes_is_lost_in_a_backlog_too(
    jobs: Jobs, depths: KnownDepths, reconciler: Reconciler, due: str, issued: int
) -> None:
    await jobs.queued(queued_at=due)
    await watermark(jobs, "llm/4", "now() - interval '10 min'")
    depths.ready_on = {"llm": 1000}

    assert await reconciler.step() == issued


@pytest.mark.parametrize("mark", ["llm/9", "mail/4"])
async def test_another_priority_or_queue_says_nothing_about_a_backlog(
    jobs: Jobs, depths: KnownDepths, reconciler: Reconciler, mark: str
) -> None:
    await jobs.queued(queued_at="now() - interval '1 hour'")
    await watermark(jobs, mark, "now()")
    depths.ready_on = {"llm": 1000}

    assert await reconciler.step() == 0


async def watermark(jobs: Jobs, key: str, moment: str) -> None:
    await jobs.worker(
        id=f"'{key}'",
        watermarks=f"jsonb_build_object('{key}', to_char(({moment}) AT TIME ZONE 'UTC',"
        """ 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))""",
    )


async def test_the_farthest_worker_counts(
    jobs: Jobs, depths: KnownDepths, reconciler: Reconciler
) -> None:
    await jobs.queued(queued_at="now() - interval '1 hour'")
    await watermark(jobs, "llm/4", "now() - interval '59 min'")
    await jobs.all("UPDATE filaviva.workers SET id = 'slow'")
    await watermark(jobs, "llm/4", "now() - interval '1 min'")
    depths.ready_on = {"llm": 1000}

    assert await reconciler.step() == 1


async def test_nothing_is_issued_while_the_broker_is_unreachable(
    jobs: Jobs, depths: KnownDepths, reconciler: Reconciler
) -> None:
    await jobs.queued(queued_at=OLD)
    await jobs.queued(state="'failed'", finished_at=OLD)
    depths.ready_on = None

    assert await reconciler.step() == 0


async def test_nothing_is_issued_for_a_queue_that_does_not_exist(
    jobs: Jobs, depths: KnownDepths, reconciler: Reconciler
) -> None:
    await jobs.queued(queued_at=OLD)
    depths.ready_on = {}

    assert await reconciler.step() == 0


@pytest.mark.parametrize(
    ("due", "reissued", "again"),
    [
        ("2 min", "50 s", False),
        ("2 min", "61 s", True),
        ("10 min", "3 min", False),
        ("10 min", "6 min", True),
        ("9 hours", "59 min", False),
        ("9 hours", "61 min", True),
    ],
)
async def test_the_next_re_issue_waits_twice_as_long_up_to_an_hour(
    jobs: Jobs, reconciler: Reconciler, due: str, reissued: str, *, again: bool
) -> None:
    await jobs.queued(
        queued_at=f"now() - interval '{due}'", reissued_at=f"now() - interval '{reissued}'"
    )

    assert await reconciler.step() == again


async def test_a_lost_backlog_comes_back_in_portions_oldest_first(jobs: Jobs, told: Told) -> None:
    reconciler = reconciler_of(jobs, told, KnownDepths(llm=0, mail=0), batch=3)
    backlog = [await jobs.queued(queued_at=f"now() - interval '{9 - n} min'") for n in range(5)]
    mail = [await jobs.queued(queued_at=OLD, queue="'mail'") for _ in range(2)]

    assert await reconciler.step() == 5

    assert {row.job_id for row in told.rows} == {*backlog[:3], *mail}
    assert await reconciler.step() == 2


async def test_reconcilers_side_by_side_issue_each_wake_up_once(jobs: Jobs, told: Told) -> None:
    lost = [await jobs.queued(queued_at=OLD) for _ in range(40)]
    everybody = [reconciler_of(jobs, told, KnownDepths(llm=0)) for _ in range(6)]

    await asyncio.gather(*(reconciler.step() for reconciler in everybody))

    assert sorted(job_ids(told)) == sorted(lost)
    assert {(await jobs.row(job))["issue"] for job in lost} == {2}


def job_ids(told: Told) -> list[UUID]:
    return [row.job_id for row in told.rows if row.job_id is not None]


async def test_a_re_issued_wake_up_keeps_the_rest_of_its_pause(
    jobs: Jobs, reconciler: Reconciler
) -> None:
    job = await jobs.queued(queued_at="now() - interval '1 day'", not_before=OLD)

    await reconciler.step()

    (message,) = await jobs.outbox(job)
    assert message["not_before"] == (await jobs.row(job))["not_before"]


async def test_a_failed_job_without_dead_letter_is_told_again(
    jobs: Jobs, told: Told, reconciler: Reconciler
) -> None:
    job = await jobs.queued(state="'failed'", finished_at=OLD, epoch=2)
    await jobs.all(
        "INSERT INTO filaviva.job_events (job_id, kind, data)"
        """ VALUES (:id, 'state', '{"status": "failed", "reason": "attempts_exhausted"}')""",
        id=job,
    )

    assert await reconciler.step() == 1

    (message,) = await jobs.outbox(job)
    assert message["exchange"] == "filaviva.dead"
    assert message["message_id"] == f"{job}:dead:2:1"
    assert message["data"] == {"jobId": str(job), "epoch": 2, "reason": "attempts_exhausted"}
    assert told.facts == [DeadLetterRepublished(job, "invoice.extract")]


async def test_a_failed_job_whose_dead_letter_is_there_or_on_its_way_is_not_told_again(
    jobs: Jobs, reconciler: Reconciler
) -> None:
    there = await jobs.queued(state="'failed'", finished_at=OLD, epoch=2)
    await jobs.all(
        "WITH grouped AS (INSERT INTO filaviva.failure_groups (id, fingerprint, reason, message)"
        " VALUES (gen_random_uuid(), 'f', 'terminal', 'm') RETURNING id)"
        " INSERT INTO filaviva.dead_letters (id, job_id, epoch, reason, group_id, status)"
        " SELECT gen_random_uuid(), :id, 2, 'terminal', id, 'discarded' FROM grouped",
        id=there,
    )
    await jobs.all(
        "INSERT INTO filaviva.outbox"
        " (exchange, routing_key, message_id, type, data, job_id, epoch)"
        " SELECT 'filaviva.dead', 'llm', 'm', 't', '{}', id, 1 FROM filaviva.jobs WHERE id = :id",
        id=await jobs.queued(state="'failed'", finished_at=OLD),
    )
    await jobs.queued(state="'failed'", finished_at="now() - interval '50 s'")

    assert await reconciler.step() == 0


async def test_a_failed_job_that_outlives_its_closed_dead_letter_is_not_told_again(
    jobs: Jobs, reconciler: Reconciler
) -> None:
    await jobs.queued(state="'failed'", finished_at="now() - interval '91 days'")

    assert await reconciler.step() == 0


async def test_a_dead_letter_that_stays_away_is_asked_for_less_and_less(
    jobs: Jobs, told: Told
) -> None:
    job = await jobs.queued(state="'failed'", finished_at="now() - interval '10 min'")
    clock = Clock()
    reconciler = Reconciler(jobs.engine, KnownDepths(), told.announcer, clock=clock)
    assert await reconciler.step() == 1
    await jobs.all("DELETE FROM filaviva.outbox")

    clock.now += 61
    assert await reconciler.step() == 0
    await jobs.all("UPDATE filaviva.jobs SET reissued_at = now() - interval '6 min'")

    clock.now += 61
    assert await reconciler.step() == 1
    assert (await jobs.outbox(job))[0]["message_id"] == f"{job}:dead:1:2"


async def test_a_job_parked_for_a_missing_queue_wakes_when_the_queue_is_there(
    jobs: Jobs, told: Told, depths: KnownDepths, reconciler: Reconciler
) -> None:
    job = await jobs.queued(parked_reason="'queue_missing'")
    depths.ready_on = {}
    assert await reconciler.step() == 0

    depths.ready_on = {"llm": 5}
    assert await reconciler.step() == 1

    row = await jobs.row(job)
    assert (row["parked_reason"], row["epoch"]) == (None, 2)
    assert told.facts == [WakeUpReissued(job, "queue_missing")]


async def test_jobs_follow_their_handler_to_another_queue_once_nobody_reads_them_on_the_old_one(
    jobs: Jobs, told: Told, depths: KnownDepths
) -> None:
    reads = """'[{"type": "invoice.extract", "min": 1, "max": 1}]'"""
    await jobs.policy()
    await jobs.worker(queues="ARRAY['slow']", reads=reads)
    waiting, paused, unread, held = (
        await jobs.queued(queue="'slow'"),
        await jobs.queued(queue="'slow'", not_before="clock_timestamp() + interval '1 hour'"),
        await jobs.queued(queue="'slow'", parked_reason="'unsupported_version'"),
        await jobs.queued(queue="'slow'", parked_reason="'budget'"),
    )
    at_home, of_nobody = await jobs.queued(), await jobs.queued(queue="'slow'", version="2")

    await reconciler_of(jobs, told, depths).step()
    assert not told.facts  # a worker of the release before still runs them
    await jobs.all("UPDATE filaviva.workers SET queues = ARRAY['llm']")
    await reconciler_of(jobs, told, depths).step()

    assert {fact.job_id for fact in told.of(WakeUpReissued)} == {waiting, paused, unread}
    for job in (waiting, paused, unread):
        row, (message,) = await jobs.row(job), await jobs.outbox(job)
        assert (row["queue"], row["epoch"], row["parked_reason"]) == ("llm", 2, None)
        assert (message["routing_key"], message["message_id"]) == ("llm", f"{job}:2:1")
        assert message["not_before"] == row["not_before"]
        assert (await jobs.events(job))[-1][1]["movedFrom"] == "slow"
    for job in (held, at_home, of_nobody):
        assert (await jobs.row(job))["epoch"] == 1


async def test_queues_are_found_however_many_jobs_wait(jobs: Jobs, told: Told) -> None:
    queues = [f"q{number}" for number in range(4)]
    for queue in queues * 3:
        await jobs.queued(queued_at=OLD, queue=f"'{queue}'")
    reconciler = reconciler_of(jobs, told, KnownDepths(**dict.fromkeys(queues, 0)))

    assert await reconciler.step() == 12
