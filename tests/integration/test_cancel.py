"""Cancel: one statement for whatever state the jobs are in; the state tells the truth."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from filaviva.database.transaction import transact
from filaviva.errors import NotFound, Rejected
from filaviva.notify import CANCELS
from filaviva.operations.cancel import cancel, cancel_one, requests
from filaviva.operations.jobs import Reach
from filaviva.operations.requeue import requeue
from filaviva.operations.stop import Cancellation
from filaviva_retry_scheduler.deadlines import expire
from filaviva_retry_scheduler.decide import decide
from filaviva_worker.claim import claim
from filaviva_worker.complete import Completion, complete
from filaviva_worker.wakeup import WakeUp
from fixtures.retrying import Jobs
from fixtures.waiting import until


async def canceled(jobs: Jobs, *ids: UUID, reason: str | None = "no more") -> Cancellation:
    """Cancel as one of the faces would."""
    return await transact(jobs.engine, lambda c: cancel(c, ids, author="ana", reason=reason))


async def batch(jobs: Jobs, *states: str) -> tuple[UUID, list[UUID]]:
    """A batch whose items are in these states."""
    parent = await jobs.queued(state="'running'")
    await jobs.all(
        "INSERT INTO filaviva.batches (job_id, total) VALUES (:id, :n)", id=parent, n=len(states)
    )
    items = [
        await jobs.queued(parent_id=f"'{parent}'", item_index=n, state=f"'{state}'", fence=3)
        for n, state in enumerate(states)
    ]
    return parent, items


async def test_a_queued_job_is_canceled_at_once_and_its_wake_up_is_stale(jobs: Jobs) -> None:
    job = await jobs.queued()

    done = await canceled(jobs, job)

    row = await jobs.row(job)
    assert done.state(job) == row["state"] == "canceled"
    assert row["finished_at"] is not None
    wake = WakeUp(f"{job}:1:1", job, 1, "invoice.extract", 1, "llm")
    claims = await transact(
        jobs.engine,
        lambda c: claim(c, [wake], worker="w", claim_id=uuid4(), lease_seconds=15),
    )
    assert claims.claimed == {}
    assert claims.others == {job: "stale"}


@pytest.mark.parametrize(
    "columns",
    [
        {"not_before": "clock_timestamp() + interval '1 hour'", "epoch": 2, "attempt": 1},
        {"parked_reason": "'unsupported_version'"},
    ],
    ids=["in a pause", "parked"],
)
async def test_what_waits_for_something_else_is_canceled_at_once(
    jobs: Jobs, columns: dict[str, Any]
) -> None:
    job = await jobs.queued(**columns)

    await canceled(jobs, job)

    row = await jobs.row(job)
    assert row["state"] == "canceled"
    assert row["parked_reason"] is None


async def test_a_running_job_stays_its_workers_until_it_has_stopped(jobs: Jobs) -> None:
    job = await jobs.running()

    done = await canceled(jobs, job)

    row = await jobs.row(job)
    assert done.state(job) == row["state"] == "cancel_requested"
    assert row["cancel_requested_at"] is not None
    assert row["fence"] == 1
    assert row["lease_owner"] == "w1"
    assert row["finished_at"] is None


async def test_what_is_final_stays_as_it_is(jobs: Jobs) -> None:
    several = {
        state: await jobs.queued(state=f"'{state}'")
        for state in ("succeeded", "failed", "canceled")
    }

    done = await canceled(jobs, *several.values())

    assert {state: done.state(job) for state, job in several.items()} == {
        state: state for state in several
    }
    assert not any(job.changed for job in done.jobs)
    assert await jobs.all("SELECT 1 FROM filaviva.job_events") == []
    assert await jobs.all("SELECT 1 FROM filaviva.audit_log") == []


async def test_a_second_cancel_changes_nothing_and_keeps_the_first_moment(jobs: Jobs) -> None:
    job = await jobs.running()
    await canceled(jobs, job)
    first = await jobs.row(job)

    done = await canceled(jobs, job)

    assert done.state(job) == "cancel_requested"
    assert not any(each.changed for each in done.jobs)
    assert (await jobs.row(job))["cancel_requested_at"] == first["cancel_requested_at"]
    assert len(await jobs.events(job)) == 1


async def test_who_canceled_and_why_is_told_in_the_timeline_and_the_audit_log(jobs: Jobs) -> None:
    job = await jobs.queued()

    await canceled(jobs, job)

    told = {"status": "canceled", "cause": "cancel", "author": "ana", "reason": "no more"}
    assert await jobs.events(job) == [("state", told)]
    entry = await jobs.one("SELECT author, action, target, data FROM filaviva.audit_log")
    assert (entry["author"], entry["action"]) == ("ana", "job.canceled")
    assert entry["target"] == str(job)
    assert entry["data"]["reason"] == "no more"


async def test_a_batch_is_canceled_with_its_items(jobs: Jobs) -> None:
    parent, items = await batch(jobs, "succeeded", "running", "queued", "failed", "queued")

    done = await canceled(jobs, parent)

    states = [(await jobs.row(item))["state"] for item in items]
    assert states == ["succeeded", "cancel_requested", "canceled", "failed", "canceled"]
    assert (await jobs.row(parent))["cancel_requested_at"] is not None
    assert {job.id for job in done.canceled} == {items[2], items[4]}
    assert items[1] in {job.id for job in done.requested}
    assert done.parents == {parent}


async def test_one_item_can_be_canceled_alone_and_its_batch_is_named(jobs: Jobs) -> None:
    parent, items = await batch(jobs, "queued", "queued")

    done = await canceled(jobs, items[0])

    assert done.parents == {parent}
    assert (await jobs.row(items[1]))["state"] == "queued"
    assert (await jobs.row(parent))["cancel_requested_at"] is None


async def test_an_item_that_is_sent_back_meanwhile_is_not_missed(jobs: Jobs) -> None:
    parent, items = await batch(jobs, *["failed"] * 4)
    async with jobs.engine.connect() as retrying:
        transaction = await retrying.begin()
        await requeue(retrying, items, author="bo", reason="again")
        canceling = asyncio.create_task(canceled(jobs, parent, *items))
        await until(lambda: _waits(jobs))
        await transaction.commit()
        await canceling

    assert {(await jobs.row(item))["state"] for item in items} == {"canceled"}


async def _waits(jobs: Jobs) -> bool:
    waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return (await jobs.one(waiting + " AND datname = current_database()"))["n"] > 0


async def test_a_job_that_goes_back_after_a_cancel_is_not_asked_to_stop_any_more(
    jobs: Jobs,
) -> None:
    job = await jobs.queued()
    await canceled(jobs, job)

    await transact(jobs.engine, lambda c: requeue(c, [job], author="bo", reason="after all"))

    row = await jobs.row(job)
    assert row["state"] == "queued"
    assert row["cancel_requested_at"] is None


async def test_workers_hear_which_jobs_under_which_fences_are_to_stop(
    jobs: Jobs, database: str
) -> None:
    job, waiting = await jobs.running(fence=7), await jobs.queued()
    heard: list[str] = []
    listener = await asyncpg.connect(database)
    try:
        await listener.add_listener(CANCELS, lambda *told: heard.append(told[-1]))
        await canceled(jobs, job, waiting)
        await until(lambda: heard)
    finally:
        await listener.close()

    assert [*requests(heard[0])] == [(job, 7)]


async def test_one_job_is_canceled_only_within_reach_and_only_before_its_end(jobs: Jobs) -> None:
    job, ended = await jobs.queued(), await jobs.queued(state="'succeeded'")

    async def one(wanted: UUID, reach: Reach) -> Cancellation:
        return await transact(jobs.engine, lambda c: cancel_one(c, wanted, reach, author="ana"))

    for stranger in (Reach("other"), Reach("default", frozenset({"a.b"}))):
        with pytest.raises(NotFound):
            await one(job, stranger)
    with pytest.raises(Rejected, match="is succeeded already") as refused:
        await one(ended, Reach("default"))
    assert (refused.value.status, refused.value.code) == (409, "job_final")
    assert (await one(job, Reach("default"))).state(job) == "canceled"


async def test_cancel_and_complete_at_once_leave_a_job_in_one_of_two_true_states(
    jobs: Jobs,
) -> None:
    several = [await jobs.running() for _ in range(100)]

    async def finish(each: Sequence[UUID]) -> set[UUID]:
        completions = [Completion(job, 1, '"ok"') for job in each]
        return await transact(jobs.engine, lambda c: complete(c, completions))

    groups = [several[n : n + 5] for n in range(0, 100, 5)]
    _, *completed = await asyncio.gather(
        canceled(jobs, *several), *(finish(group) for group in groups)
    )

    states = {row["id"]: row["state"] for row in await jobs.all("SELECT * FROM filaviva.jobs")}
    assert set().union(*completed) == set(several)  # a cancel that came first is too late as well
    assert set(states.values()) == {"succeeded"}


async def test_batches_and_their_items_canceled_from_both_ends_do_not_deadlock(jobs: Jobs) -> None:
    made = [await batch(jobs, *["running"] * 10) for _ in range(4)]
    parents = [parent for parent, _ in made]
    items = [item for _, each in made for item in each]

    async def finish(item: UUID) -> set[UUID]:
        return await transact(
            jobs.engine, lambda c: complete(c, [Completion(item, 3, None) for item in [item]])
        )

    await asyncio.gather(
        canceled(jobs, *parents),
        canceled(jobs, *reversed(items)),
        *(canceled(jobs, parent) for parent in parents),
        *(finish(item) for item in items[::3]),
    )

    states = {row["id"]: row["state"] for row in await jobs.all("SELECT * FROM filaviva.jobs")}
    assert {states[item] for item in items} <= {"cancel_requested", "succeeded"}


async def test_cancel_and_claim_at_once_leave_no_job_that_runs_unasked(jobs: Jobs) -> None:
    several = [await jobs.queued() for _ in range(60)]

    async def take(each: Sequence[UUID]) -> set[UUID]:
        wakes = [WakeUp(f"{job}:1:1", job, 1, "invoice.extract", 1, "llm") for job in each]
        claims = await transact(
            jobs.engine, lambda c: claim(c, wakes, worker="w", claim_id=uuid4(), lease_seconds=15)
        )
        return set(claims.claimed)

    groups = [several[n : n + 6] for n in range(0, 60, 6)]
    _, *taken = await asyncio.gather(canceled(jobs, *several), *(take(group) for group in groups))

    states = {row["id"]: row["state"] for row in await jobs.all("SELECT * FROM filaviva.jobs")}
    claimed = set().union(*taken)
    assert {job for job, state in states.items() if state == "cancel_requested"} == claimed
    assert {job for job, state in states.items() if state == "canceled"} == {*several} - claimed


async def test_cancel_and_deadline_at_once_end_a_job_once(jobs: Jobs) -> None:
    several = [await jobs.queued(deadline="clock_timestamp() - interval '1 s'") for _ in range(30)]

    await asyncio.gather(
        canceled(jobs, *several),
        transact(jobs.engine, lambda c: expire(c, limit=100)),
        *(canceled(jobs, job) for job in several[::3]),
    )

    for job in several:
        events = [data["status"] for kind, data in await jobs.events(job) if kind == "state"]
        assert events in (["canceled"], ["failed"])
        assert (await jobs.row(job))["state"] == events[0]
        letters = [row for row in await jobs.outbox(job) if row["type"].startswith("filaviva.job.")]
        assert bool(letters) == (events == ["failed"])


async def test_a_cancel_of_a_job_whose_failure_is_being_decided_leaves_no_other_attempt(
    jobs: Jobs,
) -> None:
    job = await jobs.failing()
    await canceled(jobs, job)

    await transact(jobs.engine, lambda c: decide(c, [(job, 1)]))

    assert (await jobs.row(job))["state"] == "canceled"
    assert await jobs.outbox(job) == []
