"""Claim: exactly what is due, by one worker, whatever is delivered how often."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.database.transaction import transact
from filaviva_worker.claim import Claims, Verdict, claim, claimed_before
from filaviva_worker.wakeup import WakeUp
from fixtures.retrying import Jobs


def wake(job: UUID, epoch: int = 1, issue: int = 1) -> WakeUp:
    return WakeUp(f"{job}:{epoch}:{issue}", job, epoch, "invoice.extract", 1, "llm")


async def claimed(
    engine: AsyncEngine,
    wanted: Sequence[WakeUp],
    *,
    worker: str = "w",
    claim_id: UUID | None = None,
) -> Claims:
    async def work(connection: AsyncConnection) -> Claims:
        return await claim(
            connection, wanted, worker=worker, claim_id=claim_id or uuid4(), lease_seconds=15
        )

    return await transact(engine, work)


async def test_a_due_job_becomes_ours_with_a_lease_a_fence_and_an_open_attempt(jobs: Jobs) -> None:
    job = await jobs.queued(fence=4, attempt=2)

    claims = await claimed(jobs.engine, [wake(job)])

    row, attempt = await jobs.row(job), await jobs.attempt(job)
    assert (row["state"], row["attempt"], row["lease_owner"]) == ("running", 3, "w")
    assert 13 < (row["lease_expires_at"] - row["now"]).total_seconds() <= 15
    assert (attempt["number"], attempt["outcome"]) == (3, None)
    assert (claims.claimed[job].fence, claims.claimed[job].payload) == (row["fence"], "{}")
    assert row["fence"] > 4


async def test_a_fence_is_never_given_twice_even_when_a_claim_is_taken_back(jobs: Jobs) -> None:
    """A claim is not flushed: a crash of the server may undo it while somebody works under it."""
    job = await jobs.queued(fence=4)
    before = await jobs.row(job)
    first = (await claimed(jobs.engine, [wake(job)])).claimed[job].fence
    await jobs.all(
        "UPDATE filaviva.jobs SET fence = 4, attempt = :attempt, state = 'running'",
        attempt=before["attempt"],
    )
    await jobs.all("UPDATE filaviva.jobs SET state = 'queued'")
    await jobs.all("TRUNCATE filaviva.attempts, filaviva.inbox")

    second = (await claimed(jobs.engine, [wake(job)])).claimed[job].fence

    assert second > first


async def test_only_the_claim_itself_is_not_flushed(jobs: Jobs) -> None:
    job = await jobs.queued()
    show = "SELECT current_setting('synchronous_commit')"
    async with jobs.engine.connect() as connection:
        await claim(connection, [wake(job)], worker="w", claim_id=uuid4(), lease_seconds=15)
        during = (await fetch(connection, show))[0][0]
        await connection.commit()
        after = (await fetch(connection, show))[0][0]

    assert (during, after) == ("off", "on")


@pytest.mark.parametrize(
    ("columns", "verdict"),
    [
        ({"state": "'running'", "fence": 1}, Verdict.STALE),
        ({"state": "'cancel_requested'"}, Verdict.STALE),
        ({"state": "'succeeded'"}, Verdict.STALE),
        ({"state": "'failed'"}, Verdict.STALE),
        ({"epoch": 2}, Verdict.STALE),
        ({"parked_reason": "'budget'"}, Verdict.STALE),
        ({"deadline": "clock_timestamp() - interval '1 s'"}, Verdict.STALE),
        ({"not_before": "clock_timestamp() + interval '1 min'"}, Verdict.EARLY),
    ],
)
async def test_only_a_queued_due_job_of_that_epoch_is_claimed(
    jobs: Jobs, columns: dict[str, object], verdict: Verdict
) -> None:
    job = await jobs.queued(**columns)
    before = await jobs.row(job)

    claims = await claimed(jobs.engine, [wake(job)])

    after = await jobs.row(job)
    assert (claims.claimed, claims.others) == ({}, {job: verdict})
    assert {**before, "now": None} == {**after, "now": None}


async def test_a_wake_up_delivered_100_times_at_once_is_claimed_once(jobs: Jobs) -> None:
    job = await jobs.queued()

    many = await asyncio.gather(
        *(claimed(jobs.engine, [wake(job)], worker=f"w{n}") for n in range(100))
    )

    assert sum(len(claims.claimed) for claims in many) == 1
    counted = await jobs.one("SELECT count(*) AS rows, max(duplicates) AS d FROM filaviva.inbox")
    assert counted == {"rows": 1, "d": 99}
    assert (await jobs.row(job))["attempt"] == 1


async def test_overlapping_batches_in_opposite_order_never_deadlock(jobs: Jobs) -> None:
    many = [await jobs.queued() for _ in range(40)]

    async def claims(order: list[UUID]) -> int:
        return len((await claimed(jobs.engine, [wake(job) for job in order])).claimed)

    taken = await asyncio.gather(*(claims(many if n % 2 else many[::-1]) for n in range(20)))

    assert sum(taken) == len(many)


async def test_a_claim_whose_answer_was_lost_is_found_again_by_its_id(jobs: Jobs) -> None:
    mine, theirs = await jobs.queued(), await jobs.queued()
    claim_id = uuid4()
    await claimed(jobs.engine, [wake(mine)], claim_id=claim_id)
    await claimed(jobs.engine, [wake(theirs)], worker="other")

    async def work(connection: AsyncConnection) -> set[UUID]:
        found = await claimed_before(connection, [mine, theirs], worker="w", claim_id=claim_id)
        return set(found)

    assert await transact(jobs.engine, work) == {mine}


async def test_of_jobs_whose_workers_died_only_one_is_claimed_at_a_time(jobs: Jobs) -> None:
    suspects = [await jobs.queued(losses=2) for _ in range(3)]
    innocent = [await jobs.queued(losses=n) for n in (0, 1)]

    claims = await claimed(jobs.engine, [wake(job) for job in [*suspects, *innocent]])

    assert len(claims.claimed.keys() & suspects) == 1
    assert claims.claimed.keys() >= set(innocent)
    assert set(claims.others.values()) == {Verdict.SUSPECT}
    assert len(claims.others) == 2


async def test_a_wake_up_that_names_another_contract_than_its_job_claims_nothing(
    jobs: Jobs,
) -> None:
    # Whoever may publish to the queue must not bring a worker a job that it cannot read.
    job = await jobs.queued(type="'no.such'")

    claims = await claimed(jobs.engine, [wake(job)])

    assert (claims.claimed, claims.others) == ({}, {job: Verdict.STALE})
