"""Wake-ups issued again, on a real database."""

import asyncio
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.transaction import transact
from filaviva.outbox import OutboxRow
from filaviva.wakeups import reissue
from fixtures.retrying import Jobs


async def reissued(jobs: Jobs, *pairs: tuple[UUID, int], lost: bool = False) -> list[OutboxRow]:
    async def work(connection: AsyncConnection) -> list[OutboxRow]:
        return await reissue(connection, pairs, lost=lost)

    return await transact(jobs.engine, work)


async def test_a_re_issue_keeps_the_epoch_and_has_a_message_id_of_its_own(jobs: Jobs) -> None:
    job = await jobs.queued(epoch=3, issue=2)

    (row,) = await reissued(jobs, (job, 3))

    assert row.message_id == f"{job}:3:3"
    assert (row.epoch, row.routing_key) == (3, "llm")


async def test_only_the_reconciler_marks_when_it_believed_a_wake_up_lost(jobs: Jobs) -> None:
    early, lost = await jobs.queued(), await jobs.queued()

    await reissued(jobs, (early, 1))
    await reissued(jobs, (lost, 1), lost=True)

    assert (await jobs.row(early))["reissued_at"] is None
    assert (await jobs.row(lost))["reissued_at"] is not None


@pytest.mark.parametrize(
    "columns",
    [{"epoch": 2}, {"state": "'running'"}, {"parked_reason": "'budget'"}],
    ids=["another epoch", "claimed", "parked"],
)
async def test_a_job_that_needs_no_wake_up_gets_none(jobs: Jobs, columns: dict[str, str]) -> None:
    job = await jobs.queued(**columns)

    assert await reissued(jobs, (job, 1)) == []


async def test_a_re_issue_in_a_pause_waits_for_its_rest(jobs: Jobs) -> None:
    job = await jobs.queued(not_before="clock_timestamp() + interval '60 s'")

    (row,) = await reissued(jobs, (job, 1))

    assert row.pause_seconds is not None
    assert 50 < row.pause_seconds <= 60


async def test_re_issues_in_opposite_orders_do_not_meet_in_a_deadlock(jobs: Jobs) -> None:
    pairs = [(await jobs.queued(), 1) for _ in range(30)]

    await asyncio.gather(*(reissued(jobs, *pairs[:: 1 if n % 2 else -1]) for n in range(10)))

    assert {(await jobs.row(job))["issue"] for job, _ in pairs} == {11}
