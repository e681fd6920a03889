"""Complete, fail and release: only what is still ours, together with its effects."""

import asyncio
from uuid import UUID

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.broker.topology import Topology
from filaviva.database.transaction import transact
from filaviva.outbox import OutboxRow
from filaviva.outcome import Dead, Effect, Failure, Retry
from filaviva_worker.complete import Completion, complete
from filaviva_worker.failure import FailedAttempt, fail
from filaviva_worker.release import record_canceled, release
from fixtures.retrying import Jobs

effects = Table("effects", MetaData(), Column("key", Text, primary_key=True), Column("n", Integer))


@pytest.fixture
async def effect_table(jobs: Jobs) -> None:
    await jobs.all("CREATE TABLE effects (key text PRIMARY KEY, n integer)")


def done(job: UUID, fence: int = 1, key: str | None = None) -> Completion:
    some = () if key is None else (Effect(insert(effects), {"key": key, "n": 1}),)
    return Completion(job, fence, '{"total": 12.340}', some)


async def completed(jobs: Jobs, *completions: Completion) -> set[UUID]:
    return await transact(jobs.engine, lambda c: complete(c, completions))


@pytest.mark.usefixtures("effect_table")
async def test_result_state_attempt_and_effect_are_one_commit(jobs: Jobs) -> None:
    job = await jobs.running()

    assert await completed(jobs, done(job, key="a")) == {job}

    row, attempt = await jobs.row(job), await jobs.attempt(job)
    assert (row["state"], row["lease_owner"], row["lease_expires_at"]) == ("succeeded", None, None)
    assert str(row["result"]["total"]) == "12.34" or row["result"]["total"] == 12.34
    assert attempt["outcome"] == "succeeded"
    assert attempt["finished_at"] is not None
    assert await jobs.all("SELECT key FROM effects") == [{"key": "a"}]


@pytest.mark.usefixtures("effect_table")
async def test_a_stale_worker_changes_nothing(jobs: Jobs) -> None:
    job = await jobs.running(fence=2)

    assert await completed(jobs, done(job, fence=1, key="stale")) == set()

    assert (await jobs.row(job))["state"] == "running"
    assert await jobs.all("SELECT * FROM effects") == []


@pytest.mark.usefixtures("effect_table")
async def test_a_job_queued_again_is_not_completed_by_its_late_worker(jobs: Jobs) -> None:
    # Some fence could be right and the state wrong: the number alone must not decide.
    job = await jobs.queued(fence=1)

    assert await completed(jobs, done(job, fence=1, key="late")) == set()

    assert (await jobs.row(job))["state"] == "queued"
    assert await jobs.all("SELECT * FROM effects") == []


@pytest.mark.usefixtures("effect_table")
async def test_completing_twice_is_recognised_and_has_its_effect_once(jobs: Jobs) -> None:
    job = await jobs.running()
    await completed(jobs, done(job, key="once"))

    assert await completed(jobs, done(job, key="once")) == {job}

    assert await jobs.all("SELECT count(*) AS n FROM effects") == [{"n": 1}]


async def test_a_cancel_that_came_too_late_leaves_the_truth(jobs: Jobs) -> None:
    job = await jobs.running(state="'cancel_requested'")

    assert await completed(jobs, done(job)) == {job}

    assert (await jobs.row(job))["state"] == "succeeded"


@pytest.mark.usefixtures("effect_table")
async def test_a_refused_effect_undoes_its_whole_batch(jobs: Jobs) -> None:
    first, second = await jobs.running(), await jobs.running()

    with pytest.raises(IntegrityError):
        await completed(jobs, done(first, key="same"), done(second, key="same"))

    assert {(await jobs.row(job))["state"] for job in (first, second)} == {"running"}
    assert await jobs.all("SELECT * FROM effects") == []


@pytest.mark.usefixtures("effect_table")
async def test_two_completions_of_one_job_at_once_have_one_effect(jobs: Jobs) -> None:
    job = await jobs.running()

    await asyncio.gather(*(completed(jobs, done(job, key="x")) for _ in range(10)))

    assert await jobs.all("SELECT count(*) AS n FROM effects") == [{"n": 1}]
    assert await jobs.all(
        "SELECT count(*) AS n FROM filaviva.job_events WHERE data->>'status' = 'succeeded'"
    ) == [{"n": 1}]


async def failed(jobs: Jobs, job: UUID, fence: int = 1, *, retry: bool = True) -> int:
    failure = Failure("upstream", "ServerError", "it broke", ("shop.py:extract",), "read")
    outcome = Retry(failure, 2.5) if retry else Dead(failure)

    async def work(connection: AsyncConnection) -> int:
        return len(await fail(connection, [FailedAttempt(job, fence, outcome)], Topology()))

    return await transact(jobs.engine, work)


async def test_a_failure_closes_the_attempt_and_asks_for_a_decision(jobs: Jobs) -> None:
    job = await jobs.running()

    assert await failed(jobs, job) == 1

    row, attempt = await jobs.row(job), await jobs.attempt(job)
    assert (row["state"], row["fence"], row["lease_owner"]) == ("running", 1, "decision")
    assert 28 < (row["lease_expires_at"] - row["now"]).total_seconds() <= 30
    assert (attempt["outcome"], attempt["error_class"], attempt["retry_after"]) == (
        "retry", "upstream", 2.5
    )  # fmt: skip
    assert (attempt["error_frames"], attempt["step"]) == (["shop.py:extract"], "read")
    (sent,) = await jobs.all("SELECT * FROM filaviva.outbox")
    assert (sent["exchange"], sent["data"]) == (
        "filaviva.retry", {"jobId": str(job), "fence": 1}
    )  # fmt: skip


async def test_a_failure_told_twice_is_sent_once_and_a_stale_one_never(jobs: Jobs) -> None:
    job, lost = await jobs.running(), await jobs.running(fence=2)

    assert [await failed(jobs, job), await failed(jobs, job), await failed(jobs, lost)] == [1, 0, 0]

    assert await jobs.all("SELECT count(*) AS n FROM filaviva.outbox") == [{"n": 1}]


async def released(jobs: Jobs, job: UUID, fence: int) -> list[OutboxRow]:
    return await transact(jobs.engine, lambda c: release(c, [(job, fence)], Topology()))


async def test_a_released_job_is_queued_again_and_counts_no_failure(jobs: Jobs) -> None:
    job = await jobs.running(fence=3, epoch=2)

    rows = await released(jobs, job, 3)

    row = await jobs.row(job)
    assert (row["state"], row["epoch"], row["fence"], row["failures"], row["issue"]) == (
        "queued", 3, 4, 0, 1
    )  # fmt: skip
    assert (await jobs.attempt(job))["outcome"] == "released"
    assert [sent.message_id for sent in rows] == [f"{job}:3:1"]
    assert await released(jobs, job, 3) == []


async def test_a_canceled_job_ends_once_its_work_has_stopped(jobs: Jobs) -> None:
    asked, running = await jobs.running(state="'cancel_requested'"), await jobs.running()

    ended = await transact(jobs.engine, lambda c: record_canceled(c, [(asked, 1), (running, 1)]))

    assert ended.keys() == {asked}
    assert (await jobs.row(asked))["state"] == "canceled"
    assert (await jobs.row(running))["state"] == "running"
    assert (await jobs.attempt(asked))["outcome"] == "canceled"


async def test_the_database_refuses_a_forbidden_transition(jobs: Jobs) -> None:
    job = await jobs.queued(state="'succeeded'")

    with pytest.raises(IntegrityError, match="must not go from succeeded to running"):
        await jobs.all("UPDATE filaviva.jobs SET state = 'running' WHERE id = :id", id=job)


async def test_no_write_of_another_claim_passes_the_fence(jobs: Jobs) -> None:
    job = await jobs.running(fence=7)

    for fence in (6, 8):
        assert await completed(jobs, done(job, fence=fence)) == set()
        assert await failed(jobs, job, fence) == 0
        assert (
            await transact(jobs.engine, lambda c, f=fence: release(c, [(job, f)], Topology())) == []
        )
    assert (await jobs.row(job))["state"] == "running"
