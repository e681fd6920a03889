"""A batch follows its items: whoever changed them, in whatever order, whoever died meanwhile."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from filaviva.database.transaction import transact
from filaviva.operations.batch_request import Batch
from filaviva.operations.batches import Followed, follow
from filaviva.operations.cancel import cancel
from filaviva.operations.following import Following
from filaviva.operations.requeue import requeue
from filaviva.operations.submit import Submitter
from filaviva.outbox import OutboxRow
from filaviva_retry_scheduler import deadlines
from filaviva_retry_scheduler.batches import BatchSweep
from filaviva_retry_scheduler.reconciler import Reconciler
from filaviva_worker.claim import claim
from filaviva_worker.complete import Completion, complete
from filaviva_worker.wakeup import WakeUp
from fixtures.retrying import Jobs, KnownDepths, Told
from fixtures.submissions import submission

pytestmark = pytest.mark.usefixtures("events_under_lock")


class Batches:
    """Submit batches and change their items as workers and people would."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.sent: list[OutboxRow] = []
        self.changed: set[UUID] = set()
        self._submitter = Submitter(jobs.engine, self.sent.extend)
        self._count = 0

    async def submit(
        self, total: int, *, callback_url: str | None = None, **policy: Any
    ) -> tuple[UUID, list[UUID]]:
        """Keep a batch; give its id and its items'."""
        self._count += 1
        kept = await self._submitter.submit(
            submission(
                idempotency_key=f"batch-{self._count}",
                type="invoice.extract",
                queue="llm",
                callback_url=callback_url,
                batch=Batch(tuple(f'{{"n": {n}}}' for n in range(total)), **policy),
            )
        )
        items = await self.jobs.all(
            "SELECT id FROM filaviva.jobs WHERE parent_id = :id ORDER BY item_index",
            id=kept.job_id,
        )
        return kept.job_id, [item["id"] for item in items]

    async def follow(self, *ids: UUID) -> Followed:
        """Follow and commit."""
        followed = await transact(self.jobs.engine, lambda c: follow(c, ids))
        self.sent += followed.messages
        self.changed |= followed.jobs
        return followed

    async def run(self, *items: UUID) -> None:
        """Have workers claim them."""
        for item in items:
            await self.jobs.claim(item)

    async def complete(self, *items: UUID) -> None:
        """Have workers complete them, together."""
        completions = [
            Completion(item, (await self.jobs.row(item))["fence"], '"ok"') for item in items
        ]
        await transact(self.jobs.engine, lambda c: complete(c, completions))

    async def fail(self, *items: UUID) -> None:
        """Have them fail for good."""
        await self.jobs.all(
            "UPDATE filaviva.jobs SET state = 'failed', finished_at = clock_timestamp()"
            " WHERE id = ANY(:items)",
            items=list(items),
        )

    async def states(self, items: Sequence[UUID]) -> list[str]:
        """Give the items' states."""
        return [(await self.jobs.row(item))["state"] for item in items]

    async def callbacks(self) -> list[str]:
        """Give the states that are called back."""
        rows = await self.jobs.all(
            "SELECT payload->>'status' AS status FROM filaviva.jobs"
            " WHERE type = 'filaviva.callback' ORDER BY id"
        )
        return [row["status"] for row in rows]

    async def parked(self, items: Sequence[UUID]) -> list[UUID]:
        """Give the items that wait for room."""
        rows = [await self.jobs.row(item) for item in items]
        return [row["id"] for row in rows if row["parked_reason"] == "concurrency"]


@pytest.fixture
def batches(jobs: Jobs) -> Batches:
    """Batches of this test."""
    return Batches(jobs)


async def test_the_last_two_items_ending_at_once_end_their_batch(batches: Batches) -> None:
    made = [await batches.submit(2) for _ in range(10)]
    items = [item for _, each in made for item in each]
    await batches.run(*items)

    async def end(batch: UUID, item: UUID) -> None:
        await batches.complete(item)
        await batches.follow(batch)

    await asyncio.gather(*(end(batch, item) for batch, each in made for item in each))

    assert set(await batches.states([batch for batch, _ in made])) == {"succeeded"}


async def test_following_is_serialised_by_the_batch_and_reads_after_the_lock(
    batches: Batches,
) -> None:
    batch, (first, second) = await batches.submit(2)
    await batches.run(first, second)
    await batches.complete(first)
    async with batches.jobs.engine.connect() as early:
        transaction = await early.begin()
        await follow(early, [batch])
        await batches.complete(second)
        late = asyncio.create_task(batches.follow(batch))
        await asyncio.sleep(0)
        await transaction.commit()
        await late

    assert (await batches.jobs.row(batch))["state"] == "succeeded"
    told = [data["status"] for kind, data in await batches.jobs.events(batch) if kind == "item"]
    assert told == ["succeeded", "running", "succeeded"]


async def test_following_again_writes_nothing(batches: Batches) -> None:
    batch, items = await batches.submit(3)
    await batches.run(items[0])
    await batches.follow(batch)
    before = await batches.jobs.events(batch), (await batches.jobs.row(batch))["updated_at"]

    assert (await batches.follow(batch)).jobs == frozenset()

    assert before == (
        await batches.jobs.events(batch),
        (await batches.jobs.row(batch))["updated_at"],
    )


async def test_a_batch_costs_what_its_items_cost(batches: Batches) -> None:
    batch, items = await batches.submit(3)
    await batches.jobs.all(
        "UPDATE filaviva.jobs SET cost_usd = 0.1 WHERE parent_id = :id", id=batch
    )
    await batches.run(*items)
    await batches.follow(batch)

    assert str((await batches.jobs.row(batch))["cost_usd"]) == "0.3"


async def test_fail_fast_stops_the_others(batches: Batches) -> None:
    batch, items = await batches.submit(5, fail_fast=True)
    await batches.run(*items[:3])
    await batches.complete(items[0])
    await batches.fail(items[1])

    followed = await batches.follow(batch)

    assert await batches.states([batch, *items]) == [
        "running", "succeeded", "failed", "cancel_requested", "canceled", "canceled",
    ]  # fmt: skip
    assert {job.id for job in followed.canceled} == set(items[3:])
    await batches.complete(items[2])  # the cancel came too late
    await batches.follow(batch)
    row = await batches.jobs.row(batch)
    assert row["state"] == "failed"
    assert row["error"]["code"] == "ItemsFailed"
    assert row["error"]["message"] == "1 of 5 items failed, 2 were canceled"


async def test_one_more_failure_than_allowed_stops_the_others(batches: Batches) -> None:
    batch, items = await batches.submit(6, max_failures=1)
    await batches.run(*items[:2])
    await batches.fail(items[0])
    await batches.follow(batch)
    assert await batches.states(items[2:]) == ["queued"] * 4

    await batches.fail(items[1])
    await batches.follow(batch)

    assert await batches.states(items[2:]) == ["canceled"] * 4
    assert (await batches.jobs.row(batch))["state"] == "failed"


async def test_no_more_items_than_allowed_are_ever_on_their_way(batches: Batches) -> None:
    batch, items = await batches.submit(12, concurrency=3)
    assert [row.job_id for row in batches.sent] == items[:3]
    done: set[UUID] = set()
    most = 0

    while waiting := [row.job_id for row in batches.sent if row.job_id not in done]:
        most = max(most, len(waiting))
        one = waiting[0]
        assert one is not None
        await batches.run(one)
        await batches.complete(one)
        done.add(one)
        # Several processes follow at once: the room is given away once.
        await asyncio.gather(*(batches.follow(batch) for _ in range(3)))

    assert most == 3
    assert done == set(items)
    assert (await batches.jobs.row(batch))["state"] == "succeeded"
    released = (await batches.jobs.row(items[5]))["epoch"]
    assert released == 2


async def test_an_item_sent_back_waits_for_room(batches: Batches) -> None:
    batch, items = await batches.submit(4, concurrency=2)
    await batches.run(*items[:2])
    await batches.fail(items[0])
    await batches.follow(batch)
    batches.sent.clear()

    done = await transact(
        batches.jobs.engine, lambda c: requeue(c, [items[0]], author="a", reason="again")
    )

    assert list(done.messages) == []
    assert await batches.parked(items) == [items[0], items[3]]
    await batches.complete(items[1])
    await batches.follow(batch)
    assert [row.job_id for row in batches.sent] == [items[0]]


async def test_an_item_sent_back_by_a_replay_opens_its_batch_again(batches: Batches) -> None:
    batch, items = await batches.submit(3)
    await batches.run(*items)
    await batches.complete(*items[:2])
    await batches.fail(items[2])
    await batches.follow(batch)
    row = await batches.jobs.row(batch)
    assert (row["state"], row["progress"]["message"]) == ("succeeded", "2 of 3 completed")

    await transact(batches.jobs.engine, lambda c: requeue(c, [items[2]], author="a", reason="r"))
    await BatchSweep(batches.jobs.engine, _following(batches)).step()

    row = await batches.jobs.row(batch)
    assert (row["state"], row["finished_at"]) == ("running", None)
    await batches.run(items[2])
    await batches.complete(items[2])
    await batches.follow(batch)
    row = await batches.jobs.row(batch)
    assert (row["state"], row["progress"]["message"]) == ("succeeded", "3 of 3 completed")


async def test_what_failed_before_a_batch_went_on_stops_nothing(batches: Batches) -> None:
    batch, items = await batches.submit(3, max_failures=1)
    await batches.run(*items)
    await batches.fail(*items)
    await batches.follow(batch)

    await transact(batches.jobs.engine, lambda c: requeue(c, [items[0]], author="a", reason="r"))
    await batches.follow(batch)

    assert await batches.states([batch, *items]) == ["running", "queued", "failed", "failed"]
    await batches.run(items[0])
    await batches.complete(items[0])
    await batches.follow(batch)
    assert (await batches.jobs.row(batch))["state"] == "failed", "two failed, one was allowed"


async def test_a_batch_that_ended_otherwise_meanwhile_went_on_in_between(batches: Batches) -> None:
    batch, items = await batches.submit(2, accept_partial=False)
    await batches.run(*items)
    await batches.complete(items[0])
    await batches.fail(items[1])
    await batches.follow(batch)

    await transact(batches.jobs.engine, lambda c: requeue(c, [items[1]], author="a", reason="r"))
    await batches.run(items[1])
    await batches.complete(items[1])
    await batches.follow(batch)

    told = [data["status"] for kind, data in await batches.jobs.events(batch) if kind == "state"]
    assert told == ["queued", "failed", "running", "succeeded"]


async def test_a_batch_calls_back_each_time_it_ends(batches: Batches) -> None:
    batch, items = await batches.submit(2, callback_url="https://shop.example/hook")
    await batches.run(*items)
    await batches.complete(items[0])
    await batches.fail(items[1])
    await batches.follow(batch)
    assert await batches.callbacks() == ["succeeded"]

    await transact(batches.jobs.engine, lambda c: requeue(c, [items[1]], author="a", reason="r"))
    await batches.follow(batch)
    await batches.run(items[1])
    await batches.complete(items[1])
    await batches.follow(batch)
    await batches.follow(batch)

    assert await batches.callbacks() == ["succeeded", "succeeded"]


async def test_a_batch_that_came_to_the_same_end_meanwhile_has_ended_again(
    batches: Batches,
) -> None:
    batch, items = await batches.submit(2, callback_url="https://shop.example/hook")
    await batches.run(*items)
    await batches.complete(items[0])
    await batches.fail(items[1])
    await batches.follow(batch)

    await transact(batches.jobs.engine, lambda c: requeue(c, [items[1]], author="a", reason="r"))
    await batches.run(items[1])
    await batches.complete(items[1])
    await batches.follow(batch)

    told = [data["status"] for kind, data in await batches.jobs.events(batch) if kind == "state"]
    assert told == ["queued", "succeeded", "running", "succeeded"]
    assert await batches.callbacks() == ["succeeded", "succeeded"]


async def test_a_canceled_batch_ends_when_its_last_item_has_stopped(batches: Batches) -> None:
    batch, items = await batches.submit(4, concurrency=2)
    await batches.run(*items[:2])
    await batches.complete(items[0])

    done = await transact(batches.jobs.engine, lambda c: cancel(c, [batch], author="ana"))

    assert done.state(batch) == "cancel_requested"
    assert await batches.states(items) == [
        "succeeded", "cancel_requested", "canceled", "canceled",
    ]  # fmt: skip
    await batches.jobs.all(
        "UPDATE filaviva.jobs SET state = 'canceled' WHERE id = :id", id=items[1]
    )
    await batches.follow(batch)
    assert (await batches.jobs.row(batch))["state"] == "canceled"


async def test_an_item_sent_back_while_its_batch_is_being_canceled_stops_too(
    batches: Batches,
) -> None:
    batch, items = await batches.submit(3)
    await batches.run(*items[:2])
    await batches.fail(items[0])
    await transact(batches.jobs.engine, lambda c: cancel(c, [batch], author="ana"))

    await transact(batches.jobs.engine, lambda c: requeue(c, [items[0]], author="a", reason="r"))
    await batches.follow(batch)

    assert await batches.states([batch, *items]) == [
        "cancel_requested", "canceled", "cancel_requested", "canceled",
    ]  # fmt: skip


async def test_a_canceled_batch_stays_what_it_is_however_often_it_is_followed(
    batches: Batches,
) -> None:
    batch, items = await batches.submit(2)
    await batches.run(items[0])
    await batches.complete(items[0])
    await batches.follow(batch)
    await transact(batches.jobs.engine, lambda c: cancel(c, [batch], author="ana"))
    assert (await batches.jobs.row(batch))["state"] == "canceled"
    told = await batches.jobs.events(batch)

    await batches.follow(batch)

    assert (await batches.jobs.row(batch))["state"] == "canceled"
    assert await batches.jobs.events(batch) == told


async def test_a_batch_that_had_not_begun_is_canceled_at_once(batches: Batches) -> None:
    batch, _ = await batches.submit(3)

    done = await transact(batches.jobs.engine, lambda c: cancel(c, [batch], author="ana"))

    assert done.state(batch) == "canceled"
    assert len(done.canceled) == 3


async def test_the_sweeper_ends_what_a_dead_process_left(batches: Batches) -> None:
    made = [await batches.submit(2) for _ in range(5)]
    for _, items in made[1:]:
        await batches.run(*items)
        await batches.complete(*items)
    sweep = BatchSweep(batches.jobs.engine, _following(batches), limit=2)

    seen = [await sweep.step() for _ in range(4)]

    assert seen == [2, 2, 1, 1]
    states = await batches.states([batch for batch, _ in made])
    assert states == ["queued", *["succeeded"] * 4]
    assert {batch for batch, _ in made[1:]} <= batches.changed


async def test_following_collects_what_comes_at_once(batches: Batches) -> None:
    batch, items = await batches.submit(20)
    alone, _ = await batches.submit(1)
    await batches.run(*items)
    await batches.complete(*items)
    following = _following(batches)

    following.items_changed([batch, None, batch])
    following.changed(items)
    following.changed([alone])
    looked_at = await following.step()

    assert looked_at == 1
    assert (await batches.jobs.row(batch))["state"] == "succeeded"
    assert batches.changed == {batch, alone, *items}
    assert await following.step() == 0


async def test_batches_followed_swept_and_canceled_at_once_come_to_one_end(
    batches: Batches,
) -> None:
    made = [await batches.submit(10, concurrency=4, fail_fast=True) for _ in range(4)]
    sweep = BatchSweep(batches.jobs.engine, _following(batches))

    async def work(batch: UUID, items: Sequence[UUID]) -> None:
        for item in items[:4]:
            await batches.run(item)
            await (batches.fail(item) if item == items[3] else batches.complete(item))
            await batches.follow(batch)

    async def give_up() -> None:
        for batch, _ in made[2:]:
            await transact(batches.jobs.engine, lambda c, b=batch: cancel(c, [b], author="a"))

    await asyncio.gather(*(work(*one) for one in made[:2]), sweep.step(), give_up(), sweep.step())
    await sweep.step()

    assert await batches.states([batch for batch, _ in made]) == [
        "failed", "failed", "canceled", "canceled",
    ]  # fmt: skip


async def test_nobody_takes_a_batch_for_a_job_to_be_run_expired_or_buried(
    batches: Batches, told: Told
) -> None:
    batch, items = await batches.submit(2)
    late = "deadline = clock_timestamp() - interval '1 s', queued_at = now() - interval '5 minutes'"
    await batches.jobs.all(f"UPDATE filaviva.jobs SET {late}")
    wake = WakeUp(f"{batch}:1:1", batch, 1, "invoice.extract", 1, "llm")

    claims = await transact(
        batches.jobs.engine,
        lambda c: claim(c, [wake], worker="w", claim_id=uuid4(), lease_seconds=15),
    )
    expired = await transact(batches.jobs.engine, lambda c: deadlines.expire(c, limit=10))
    await batches.follow(batch)
    await batches.jobs.all("UPDATE filaviva.jobs SET finished_at = now() - interval '5 minutes'")
    await batches.jobs.all("DELETE FROM filaviva.outbox")
    await Reconciler(batches.jobs.engine, KnownDepths(llm=0), told.announcer).step()

    assert claims.claimed == {}
    assert expired.jobs == set(items)
    assert (await batches.jobs.row(batch))["state"] == "failed"
    assert {row.job_id for row in told.rows} == set(items), "dead letters are the items'"


def _following(batches: Batches) -> Following:
    return Following(
        batches.jobs.engine, hand_over=batches.sent.extend, changed=batches.changed.update
    )
