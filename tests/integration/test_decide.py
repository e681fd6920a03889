"""What `decide` makes of a job whose attempt did not succeed, on a real database."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.transaction import transact
from filaviva_retry_scheduler.decide import Decided, decide
from filaviva_retry_scheduler.facts import AttemptLost, JobEnded, JobRequeued
from fixtures.retrying import Jobs
from fixtures.waiting import until


async def decided(jobs: Jobs, *pairs: tuple[UUID, int], expired: bool = False) -> Decided:
    async def work(connection: AsyncConnection) -> Decided:
        return await decide(connection, pairs, expired=expired)

    return await transact(jobs.engine, work)


async def test_a_retryable_failure_waits_under_a_new_epoch_and_fence(jobs: Jobs) -> None:
    await jobs.policy(base=8, cap=100, jitter=0)
    job = await jobs.failing(epoch=3, fence=7)

    await decided(jobs, (job, 7))

    row = await jobs.row(job)
    assert (row["state"], row["epoch"], row["fence"], row["issue"]) == ("queued", 4, 8, 1)
    assert (row["failures"], row["losses"], row["lease_owner"]) == (1, 0, None)
    assert row["error"] == {
        "class": "upstream", "code": "ServerError", "message": "it broke", "retryable": True
    }  # fmt: skip


@pytest.mark.parametrize(("failures", "least"), [(0, 2), (1, 4), (2, 8), (3, 10)])
async def test_the_pause_follows_the_contracts_policy(
    jobs: Jobs, failures: int, least: float
) -> None:
    await jobs.policy(base=2, cap=10, jitter=0.5)
    job = await jobs.failing(failures=failures, attempt=failures + 1)

    await decided(jobs, (job, 1))

    attempt, row = await jobs.attempt(job), await jobs.row(job)
    assert least <= attempt["pause_seconds"] <= least + 0.5
    waited = row["not_before"] - attempt["finished_at"]
    assert abs(waited.total_seconds() - attempt["pause_seconds"]) < 0.001


async def test_a_contract_that_nobody_registered_has_the_usual_policy(jobs: Jobs) -> None:
    job = await jobs.failing()

    await decided(jobs, (job, 1))

    assert 2 <= (await jobs.attempt(job))["pause_seconds"] <= 3


async def test_the_pause_is_never_shorter_than_the_other_side_asked(jobs: Jobs) -> None:
    job = await jobs.failing(retry_after=77.5)

    await decided(jobs, (job, 1))

    assert (await jobs.attempt(job))["pause_seconds"] == 77.5


async def test_time_that_the_decision_took_is_part_of_the_pause(jobs: Jobs) -> None:
    job = await jobs.failing(ended="1 hour")

    await decided(jobs, (job, 1))

    row = await jobs.row(job)
    assert row["state"] == "queued"
    assert timedelta(0) <= row["now"] - row["not_before"] < timedelta(seconds=5)


async def test_the_wake_up_of_the_next_attempt_waits_in_the_outbox(jobs: Jobs) -> None:
    job = await jobs.failing(epoch=3, priority=6)

    result = await decided(jobs, (job, 1))

    (message,) = await jobs.outbox(job)
    assert [row.id for row in result.rows] == [message["id"]]
    assert (message["exchange"], message["routing_key"]) == ("filaviva.jobs", "llm")
    assert (message["message_id"], message["type"]) == (f"{job}:4:1", "filaviva.wakeup.v1")
    assert message["data"] == {
        "jobId": str(job), "epoch": 4, "type": "invoice.extract", "version": 1, "queue": "llm"
    }  # fmt: skip
    assert message["not_before"] == (await jobs.row(job))["not_before"]
    assert (message["epoch"], message["priority"]) == (4, 6)
    assert message["correlation_id"] == str(job)


async def test_the_timeline_tells_when_it_goes_on(jobs: Jobs) -> None:
    job = await jobs.failing()

    await decided(jobs, (job, 1))

    ((kind, told),) = await jobs.events(job)
    assert (kind, told["status"], told["attempt"]) == ("state", "queued", 1)
    assert told["notBefore"].endswith("Z")
    assert told["error"]["class"] == "upstream"


async def test_a_terminal_failure_ends_the_job_with_a_dead_letter(jobs: Jobs) -> None:
    job = await jobs.failing("failed", error_class="invalid_input", epoch=2)

    result = await decided(jobs, (job, 1))

    row, (message,) = await jobs.row(job), await jobs.outbox(job)
    assert (row["state"], row["epoch"], row["fence"]) == ("failed", 2, 2)
    assert row["finished_at"] is not None
    assert row["error"]["retryable"] is False
    assert (message["exchange"], message["type"]) == ("filaviva.dead", "filaviva.job.dead.v1")
    assert message["message_id"] == f"{job}:dead:2"
    assert message["data"] == {"jobId": str(job), "epoch": 2, "reason": "terminal"}
    assert [type(fact) for fact in result.facts] == [JobEnded]


async def test_the_last_allowed_failure_ends_the_job(jobs: Jobs) -> None:
    job = await jobs.failing(failures=4, attempt=9, max_attempts=5)

    await decided(jobs, (job, 1))

    (message,) = await jobs.outbox(job)
    assert message["data"]["reason"] == "attempts_exhausted"
    row = await jobs.row(job)
    assert (row["state"], row["failures"], row["error"]["retryable"]) == ("failed", 5, True)


async def test_a_next_attempt_after_the_deadline_is_not_made(jobs: Jobs) -> None:
    late = await jobs.failing(deadline="clock_timestamp() + interval '1 s'")
    soon = await jobs.failing(deadline="clock_timestamp() + interval '1 hour'")

    await decided(jobs, (late, 1), (soon, 1))

    assert (await jobs.outbox(late))[0]["data"]["reason"] == "expired"
    assert (await jobs.row(late))["state"] == "failed"
    assert (await jobs.row(soon))["state"] == "queued"


@pytest.mark.parametrize("outcome", ["retry", "failed"])
async def test_a_canceled_job_is_neither_repeated_nor_dead(jobs: Jobs, outcome: str) -> None:
    job = await jobs.failing(outcome, state="'cancel_requested'")

    await decided(jobs, (job, 1))

    row = await jobs.row(job)
    assert (row["state"], row["epoch"]) == ("canceled", 1)
    assert row["finished_at"] is not None
    assert await jobs.outbox(job) == []
    assert await jobs.events(job) == [("state", {"status": "canceled", "attempt": 1})]


async def test_an_open_attempt_is_lost_and_costs_no_allowance(jobs: Jobs) -> None:
    job = await jobs.running(lease="-1 s", failures=3)

    result = await decided(jobs, (job, 1), expired=True)

    row, attempt = await jobs.row(job), await jobs.attempt(job)
    assert (row["state"], row["failures"], row["losses"]) == ("queued", 3, 1)
    assert (attempt["outcome"], attempt["error_class"]) == ("lost", "lost")
    assert attempt["finished_at"] is not None
    assert 1 <= attempt["pause_seconds"] <= 2
    assert [kind for kind, _ in await jobs.events(job)] == ["attempt", "state"]
    assert [type(fact) for fact in result.facts] == [AttemptLost, JobRequeued]


async def test_the_fifth_lost_attempt_ends_the_job_as_poison(jobs: Jobs) -> None:
    job = await jobs.running(lease="-1 s", losses=4, max_attempts=100)

    await decided(jobs, (job, 1), expired=True)

    row, (message,) = await jobs.row(job), await jobs.outbox(job)
    assert (row["state"], row["losses"], row["error"]["class"]) == ("failed", 5, "lost")
    assert "5 times" in row["error"]["message"]
    assert message["data"]["reason"] == "attempts_exhausted"


async def test_another_fence_changes_nothing(jobs: Jobs) -> None:
    job = await jobs.failing(fence=8)
    before = await jobs.row(job)

    result = await decided(jobs, (job, 7), (job, 9))

    assert result == Decided()
    assert (await jobs.row(job))["updated_at"] == before["updated_at"]


@pytest.mark.parametrize("state", ["queued", "succeeded", "failed", "canceled"])
async def test_a_job_that_is_not_running_is_left_alone(jobs: Jobs, state: str) -> None:
    job = await jobs.failing(state=f"'{state}'")

    assert await decided(jobs, (job, 1)) == Decided()

    assert (await jobs.row(job))["state"] == state


async def test_a_lease_that_has_not_run_out_is_not_freed(jobs: Jobs) -> None:
    job = await jobs.running()

    assert await decided(jobs, (job, 1), expired=True) == Decided()


async def test_a_job_in_other_hands_is_skipped_and_not_awaited_when_leases_are_freed(
    jobs: Jobs,
) -> None:
    held = await jobs.running(lease="-1 s")
    free = await jobs.running(lease="-1 s")
    async with jobs.engine.begin() as connection:
        await connection.exec_driver_sql(
            "SELECT 1 FROM filaviva.jobs WHERE id = $1 FOR SHARE", (held,)
        )

        result = await asyncio.wait_for(decided(jobs, (held, 1), (free, 1), expired=True), 1)

    assert result.jobs == {free}


async def test_an_attempt_closed_while_we_waited_for_its_job_is_not_taken_for_lost(
    jobs: Jobs,
) -> None:
    job = await jobs.running(lease="-1 s")
    async with jobs.engine.begin() as worker:
        await worker.exec_driver_sql(
            "SELECT 1 FROM filaviva.jobs WHERE id = $1 FOR NO KEY UPDATE", (job,)
        )
        await worker.exec_driver_sql(
            "UPDATE filaviva.attempts SET outcome = 'failed', error_class = 'terminal',"
            " finished_at = clock_timestamp() WHERE job_id = $1",
            (job,),
        )
        deciding = asyncio.create_task(decided(jobs, (job, 1)))
        await somebody_waits_for_a_lock(jobs)
    await deciding

    assert (await jobs.attempt(job))["outcome"] == "failed"
    assert (await jobs.row(job))["state"] == "failed"


async def somebody_waits_for_a_lock(jobs: Jobs) -> None:
    await until(
        lambda: jobs.all(
            "SELECT 1 FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )


async def test_many_who_decide_the_same_attempts_at_once_change_them_once(jobs: Jobs) -> None:
    pairs = [(await jobs.failing(lease="-1 s"), 1) for _ in range(20)]

    everybody = [
        decided(jobs, *(pairs if n % 2 else reversed(pairs)), expired=n % 3 == 0) for n in range(12)
    ]
    results = await asyncio.gather(*everybody)

    taken = [job for result in results for job in result.jobs]
    assert sorted(taken) == sorted(job for job, _ in pairs)
    for job, _ in pairs:
        row = await jobs.row(job)
        assert (row["state"], row["epoch"], row["fence"], row["failures"]) == ("queued", 2, 2, 1)
        assert len(await jobs.outbox(job)) == 1


async def test_a_second_decision_after_the_next_claim_is_void(jobs: Jobs) -> None:
    job = await jobs.failing()
    await decided(jobs, (job, 1))
    fence = await jobs.claim(job)

    assert await decided(jobs, (job, 1)) == Decided()

    row = await jobs.row(job)
    assert (row["state"], row["fence"]) == ("running", fence)


async def test_a_job_without_attempts_row_is_lost_and_not_stuck(jobs: Jobs) -> None:
    job = await jobs.running(lease="-1 s")
    await jobs.all("DELETE FROM filaviva.attempts WHERE job_id = :id", id=job)

    await decided(jobs, (job, 1), expired=True)

    assert (await jobs.row(job))["state"] == "queued"


async def test_nothing_to_decide_asks_the_database_nothing(jobs: Jobs) -> None:
    assert await decided(jobs) == Decided()


async def test_a_batch_of_all_kinds_is_decided_in_one_go(jobs: Jobs) -> None:
    retry, dead = await jobs.failing(), await jobs.failing("failed")
    lost = await jobs.running(lease="-1 s")
    canceled = await jobs.failing(state="'cancel_requested'")

    result = await decided(jobs, *((job, 1) for job in (retry, dead, lost, canceled)))

    states = [(await jobs.row(job))["state"] for job in (retry, dead, lost, canceled)]
    assert states == ["queued", "failed", "queued", "canceled"]
    assert len(result.rows) == 3
