"""Jobs that wait for their turn: nobody is forgotten, overtaken or served twice."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.transaction import transact
from filaviva.limits import Limit, TenantLimits
from filaviva.operations.batch_request import Batch
from filaviva.operations.batches import follow
from filaviva.operations.requeue import Requeued, requeue
from filaviva.operations.submission import Submission
from filaviva.operations.submit import Submitter
from filaviva.outbox import OutboxRow
from filaviva.telemetry.metrics import Metrics
from filaviva.turns import Turns
from filaviva_retry_scheduler.coming import Coming
from filaviva_retry_scheduler.counting import Counting
from filaviva_retry_scheduler.decide import Decided, decide
from filaviva_retry_scheduler.dispatcher import Dispatcher
from filaviva_retry_scheduler.facts import Listener, WakeUpReissued, unheard
from filaviva_retry_scheduler.meter import Meter
from filaviva_retry_scheduler.reconciler import Reconciler
from fixtures.retrying import Clock, Jobs, KnownDepths, Told

HIGH, NORMAL, LOW = 8, 4, 0


class Ground:
    """A dispatcher on a queue of known depth, and a process that submits."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.clock = Clock()
        self.depths = KnownDepths(llm=0)
        self.rows: list[OutboxRow] = []
        self.limits = TenantLimits(jobs.engine)
        self.turns = Turns(jobs.engine, self.depths, clock=self.clock)
        self.dispatcher = self.another("first")
        self.coming = Coming(jobs.engine)
        self.submitter = Submitter(jobs.engine, self.rows.extend, turns=self.turns)

    def another(self, keeper: str, listener: Listener = unheard) -> Dispatcher:
        return Dispatcher(
            self.jobs.engine,
            self.depths,
            self.rows.extend,
            self.limits,
            keeper=keeper,
            listener=listener,
            clock=self.clock,
        )

    async def submit(self, tenant: str, many: int, **changes: Any) -> list[UUID]:
        wanted = [_submission(tenant, n, changes) for n in range(many)]
        kept = await asyncio.gather(*(self.submitter.submit(one) for one in wanted))
        return [each.job_id for each in kept]

    async def round(self, *, take: bool = True) -> Counter[str]:
        """Give one round; whose jobs were woken. The workers take them at once, or not at all."""
        before = len(self.rows)
        await self.coming.step()
        await self.dispatcher.step()
        self.clock.now += 0.1
        given = self.rows[before:]
        await self.confirm(given)
        if not take:
            self.depths.ready_on = {"llm": (self.depths.ready_on or {})["llm"] + len(given)}
        return await self.owners(given)

    async def confirm(self, rows: Sequence[OutboxRow]) -> None:
        ids = [row.id for row in rows]
        await self.jobs.all("DELETE FROM filaviva.outbox WHERE id = ANY(:ids)", ids=ids)

    async def owners(self, rows: Sequence[OutboxRow]) -> Counter[str]:
        found = await self.jobs.all(
            "SELECT id, tenant FROM filaviva.jobs WHERE id = ANY(:ids)",
            ids=[row.job_id for row in rows],
        )
        tenants = {row["id"]: row["tenant"] for row in found}
        return Counter(tenants[row.job_id] for row in rows)

    async def waiting(self) -> int:
        return int((await self.jobs.one("SELECT count(*) AS n FROM filaviva.turns"))["n"])

    async def upcoming(self) -> int:
        return int((await self.jobs.one("SELECT count(*) AS n FROM filaviva.upcoming"))["n"])

    async def all_come_due(self) -> None:
        """Let every pause end, as if the time had passed."""
        await self.jobs.all("UPDATE filaviva.upcoming SET due_at = due_at - interval '1 h'")
        await self.jobs.all("UPDATE filaviva.jobs SET not_before = not_before - interval '1 h'")


def _submission(tenant: str, n: int, changes: dict[str, Any]) -> Submission:
    usual: dict[str, Any] = {
        "tenant": tenant,
        "idempotency_key": f"{changes.get('priority')}-{n:05}",
        "fingerprint": hashlib.sha256(str(n).encode()).digest(),
        "type": "invoice.extract",
        "version": 1,
        "queue": "llm",
        "payload": "{}",
        "max_attempts": 5,
        "priority": NORMAL,
        "not_before": None,
        "deadline": None,
        "labels": "{}",
        "subject": None,
        "submitted_by": "key",
        "correlation_id": "c",
        "traceparent": None,
    }
    return Submission(**usual | changes)


@pytest.fixture
async def ground(jobs: Jobs) -> Ground:
    made = Ground(jobs)
    await made.dispatcher.step()
    await made.turns.step()
    return made


async def test_a_few_leave_at_once_and_the_rest_of_a_flood_waits(ground: Ground) -> None:
    ids = await ground.submit("large", 50)

    assert await ground.waiting() == 50 - len(ground.rows)
    assert 0 < len(ground.rows) < 10
    assert len(set(ids)) == 50
    states = await ground.jobs.all("SELECT DISTINCT state, parked_reason, epoch FROM filaviva.jobs")
    assert states == [{"state": "queued", "parked_reason": None, "epoch": 1}]


async def test_everybody_waiting_is_woken_exactly_once_in_the_order_of_submission(
    ground: Ground,
) -> None:
    ids = await ground.submit("large", 300)
    while await ground.waiting():
        await ground.round()

    assert [row.job_id for row in ground.rows] == ids
    assert {row.message_id for row in ground.rows} == {f"{job}:1:1" for job in ids}


async def test_a_single_job_of_another_tenant_is_in_the_next_round(ground: Ground) -> None:
    await ground.submit("large", 500)
    for _ in range(3):
        await ground.round()
    await ground.submit("small", 1)

    assert (await ground.round())["small"] == 1


async def test_nothing_is_issued_while_the_queue_holds_enough(ground: Ground) -> None:
    await ground.submit("large", 200)
    for _ in range(10):
        await ground.round(take=False)
    issued = len(ground.rows)
    for _ in range(10):
        assert not await ground.round(take=False)

    assert issued < 50


async def test_a_flood_of_high_priority_does_not_starve_the_low(ground: Ground) -> None:
    await ground.submit("a", 20, priority=LOW)
    await ground.submit("a", 400, priority=HIGH)
    while await ground.waiting():
        await ground.round()
    stored = await ground.jobs.all("SELECT id, priority FROM filaviva.jobs")
    priorities = {row["id"]: row["priority"] for row in stored}
    woken = [priorities[row.job_id] for row in ground.rows]

    half = woken[: len(woken) // 2]
    assert half.count(LOW) >= 5
    assert half.count(HIGH) > 10 * half.count(LOW)


async def test_a_job_canceled_while_it_waited_is_not_woken(ground: Ground) -> None:
    ids = await ground.submit("large", 30)
    waiting = {row["job_id"] for row in await ground.jobs.all("SELECT job_id FROM filaviva.turns")}
    canceled = next(job for job in ids if job in waiting)
    await ground.jobs.all("UPDATE filaviva.jobs SET state = 'canceled' WHERE id = :id", id=canceled)
    while await ground.waiting():
        await ground.round()

    assert {row.job_id for row in ground.rows} == set(ids) - {canceled}


async def test_only_one_process_gives_turns_and_another_follows_when_it_is_gone(
    ground: Ground,
) -> None:
    second = ground.another("second")
    await ground.submit("large", 50)

    assert await second.step() == 0
    await ground.jobs.all("UPDATE filaviva.turn_keeper SET until = clock_timestamp()")
    ground.clock.now += 1.1
    assert await second.step() > 0
    ground.clock.now += 1.1
    assert await ground.dispatcher.step() == 0


async def test_while_nobody_gives_turns_everything_leaves_at_once(ground: Ground) -> None:
    await ground.jobs.all("UPDATE filaviva.turn_keeper SET until = clock_timestamp()")
    await ground.turns.step()

    await ground.submit("large", 50)

    assert (len(ground.rows), await ground.waiting()) == (50, 0)


async def test_what_waits_for_its_turn_is_not_taken_for_lost(ground: Ground, told: Told) -> None:
    ids = await ground.submit("large", 50)
    await ground.confirm(ground.rows)
    await ground.jobs.all("UPDATE filaviva.jobs SET queued_at = queued_at - interval '1 h'")
    issued = {row.job_id for row in ground.rows}

    await Reconciler(ground.jobs.engine, ground.depths, told.announcer).step()

    assert {row.job_id for row in told.rows} == issued
    assert len(issued) < len(ids)


async def test_a_tenant_whose_own_limit_keeps_jobs_back_gets_no_turn(ground: Ground) -> None:
    await ground.submit("large", 60)
    await ground.submit("small", 10)
    ground.limits.hold({("large", ""): Limit(running=1)})
    await ground.jobs.queued(tenant="'large'", parked_reason="'limit'")

    assert set(await ground.round()) == {"small"}


async def test_a_round_that_fails_gives_nothing_and_the_next_gives_it(ground: Ground) -> None:
    await ground.submit("large", 50)
    await ground.jobs.all("ALTER TABLE filaviva.outbox RENAME TO away")
    before = await ground.waiting()

    assert await ground.dispatcher.step() == 0
    assert await ground.waiting() == before
    await ground.jobs.all("ALTER TABLE filaviva.away RENAME TO outbox")
    assert await ground.round()


async def test_many_jobs_sent_back_at_once_take_turns_too(ground: Ground) -> None:
    failed = [await ground.jobs.queued(state="'failed'") for _ in range(30)]

    async def work(connection: AsyncConnection) -> Requeued:
        return await requeue(connection, failed, author="test", reason="again")

    done = await transact(ground.jobs.engine, work)
    await ground.confirm(done.messages)
    in_line = await ground.waiting()
    while await ground.waiting():
        await ground.round()

    assert len(done.epochs) == 30
    assert 20 < in_line < 30
    woken = Counter(row.job_id for row in [*done.messages, *ground.rows])
    assert woken == Counter(failed)
    assert {row.epoch for row in ground.rows} == {2}


async def test_of_many_jobs_for_one_moment_a_few_use_the_delay_queues_and_the_rest_take_turns(
    ground: Ground,
) -> None:
    ids = await ground.submit("large", 60, not_before=datetime.now(UTC) + timedelta(minutes=30))
    direct = [row.job_id for row in ground.rows]
    await ground.confirm(ground.rows)

    assert 0 < len(direct) < 10
    assert (await ground.waiting(), await ground.upcoming()) == (0, 60 - len(direct))
    assert not await ground.round(), "their time has not come"
    await ground.all_come_due()
    await ground.round()
    await ground.turns.step()
    await ground.submit("small", 1)
    assert (await ground.round())["small"] == 1
    while await ground.waiting():
        await ground.round()
    woken = Counter(row.job_id for row in ground.rows if row.job_id in set(ids))
    assert woken == Counter(ids)


async def test_those_whose_time_has_not_come_keep_nobody_from_leaving_at_once(
    ground: Ground,
) -> None:
    await ground.submit("large", 60, not_before=datetime.now(UTC) + timedelta(minutes=30))
    await ground.turns.step()
    before = len(ground.rows)
    await ground.submit("small", 1)

    assert len(ground.rows) == before + 1


async def test_a_lone_job_with_a_time_of_its_own_goes_through_the_delay_queues(
    ground: Ground,
) -> None:
    await ground.submit("small", 1, not_before=datetime.now(UTC) + timedelta(minutes=30))

    assert (len(ground.rows), await ground.upcoming()) == (1, 0)
    assert (ground.rows[0].pause_seconds or 0) > 1700


async def test_many_failed_attempts_take_turns_when_their_pauses_are_over(ground: Ground) -> None:
    failing = [await ground.jobs.failing(tenant="'large'", retry_after=600.0) for _ in range(40)]

    async def work(connection: AsyncConnection) -> Decided:
        return await decide(connection, [(job, 1) for job in failing], gate=ground.turns)

    decided = await transact(ground.jobs.engine, work)
    await ground.confirm(decided.rows)

    assert len(decided.jobs) == 40
    assert 0 < len(decided.rows) < 10
    assert await ground.upcoming() == 40 - len(decided.rows)
    await ground.all_come_due()
    while await ground.upcoming() or await ground.waiting():
        await ground.round()
    assert Counter(row.job_id for row in [*decided.rows, *ground.rows]) == Counter(failing)
    assert {row.epoch for row in ground.rows} == {2}


async def test_a_job_canceled_before_its_time_is_dropped_when_that_comes(ground: Ground) -> None:
    ids = await ground.submit("large", 30, not_before=datetime.now(UTC) + timedelta(minutes=30))
    await ground.jobs.all("UPDATE filaviva.jobs SET state = 'canceled'")
    direct = len(ground.rows)
    await ground.all_come_due()
    while await ground.upcoming() or await ground.waiting():
        await ground.round()

    assert (len(ground.rows), len(ids)) == (direct, 30)


async def test_items_that_a_batch_lets_go_line_up_behind_those_who_wait(ground: Ground) -> None:
    await ground.submit("large", 60)
    batch = Batch(items=tuple(["{}"] * 3), concurrency=1)
    await ground.submit("small", 1, batch=batch)
    await ground.jobs.all("DELETE FROM filaviva.turns WHERE tenant = 'small'")
    await ground.jobs.all("UPDATE filaviva.jobs SET state = 'canceled' WHERE item_index = 0")
    (found,) = await ground.jobs.all("SELECT job_id FROM filaviva.batches")

    followed = await transact(ground.jobs.engine, lambda on: follow(on, [found["job_id"]]))

    assert followed.messages == []
    line = "SELECT job_id FROM filaviva.turns WHERE tenant = 'small'"
    (in_line,) = await ground.jobs.all(line)
    assert in_line["job_id"] in followed.jobs


async def test_lost_wake_ups_are_issued_again_a_few_at_once(ground: Ground, told: Told) -> None:
    for _ in range(40):
        await ground.jobs.queued(queued_at="clock_timestamp() - interval '1 h'")
    reconciler = Reconciler(ground.jobs.engine, ground.depths, told.announcer, gate=ground.turns)

    assert await reconciler.step() == 40

    assert 0 < len(told.rows) < 10
    assert await ground.waiting() == 40 - len(told.rows)
    assert len(told.of(WakeUpReissued)) == 40


async def test_the_metrics_tell_who_waits_since_when_and_who_had_a_turn(ground: Ground) -> None:
    metrics = Metrics()
    await ground.submit("a", 20, priority=LOW)
    await ground.submit("b", 30)
    await ground.submit("b", 30, priority=HIGH, not_before=datetime.now(UTC) + timedelta(hours=1))
    given, shown = len(ground.rows), metrics.registry.get_sample_value
    counting = Counting(ground.jobs.engine, metrics)

    assert await counting.step() == 80

    low, normal = {"priority": "low"}, {"priority": "normal"}
    assert shown("filaviva_turns_waiting", low) + shown("filaviva_turns_waiting", normal) == (
        50 - given
    )
    assert abs((shown("filaviva_turns_oldest_timestamp_seconds", low) or 0) - time.time()) < 60
    assert shown("filaviva_turns_oldest_timestamp_seconds", {"priority": "high"}) == 0
    assert shown("filaviva_turns_upcoming") == 30
    ground.dispatcher = ground.another("first", Meter(metrics))
    turns = (await ground.round()).total()
    assert turns > 0
    assert (
        sum(
            shown("filaviva_turns_given_total", {"priority": name}) or 0
            for name in ("high", "normal", "low")
        )
        == turns
    )


async def test_an_overdue_job_is_taken_for_lost_only_after_a_minute_while_others_are_in_line(
    ground: Ground, told: Told
) -> None:
    overdue = await ground.jobs.queued(queued_at="clock_timestamp() - interval '1 h'")
    await ground.submit("large", 50)
    marks = "jsonb_build_object('llm/4', clock_timestamp())"
    await ground.jobs.worker(queues="'{llm}'", watermarks=marks)
    ground.depths.ready_on = {"llm": 3}
    reconciler = Reconciler(ground.jobs.engine, ground.depths, told.announcer, clock=ground.clock)

    await reconciler.step()
    assert told.rows == []
    ground.clock.now += 61
    await reconciler.step()

    assert [row.job_id for row in told.rows] == [overdue]


async def test_what_is_given_a_turn_has_no_priority_on_the_broker(ground: Ground) -> None:
    await ground.submit("a", 30, priority=LOW)
    direct = {row.job_id for row in ground.rows}
    while await ground.waiting():
        await ground.round()

    assert {row.priority for row in ground.rows if row.job_id not in direct} == {None}


async def test_a_queue_that_is_missing_is_asked_for_now_and_then_and_served_once_it_is_there(
    ground: Ground,
) -> None:
    await ground.submit("large", 50)
    ground.depths.ready_on = {}
    assert not await ground.round()

    ground.depths.ready_on = {"llm": 0}
    assert not await ground.round()
    ground.clock.now += 5
    assert await ground.round()
