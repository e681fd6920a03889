"""The scheduler: from a failed attempt's message to the decision, on a real database."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.broker.consumer import Delivery
from filaviva.broker.messages import CONFIRMED, Offending, Outgoing, Published, Unknown
from filaviva.database import connect
from filaviva_contracts.envelope import Envelope
from filaviva_contracts.wire import AttemptFailed
from filaviva_retry_scheduler.facts import JobRequeued, RequestDropped, RequestUnreadable
from filaviva_retry_scheduler.scheduler import Scheduler
from filaviva_retry_scheduler.sweeper import Sweeper
from fixtures.retrying import AnswerLost, Jobs, Steady, Told
from fixtures.waiting import until

tags = count(1)


def delivery(body: bytes, message_id: str | None = None, **given: Any) -> Delivery:
    properties: dict[str, Any] = {
        "content_type": "application/cloudevents+json",
        "type": None,
        "headers": {},
        "exchange": "filaviva.retry",
        "routing_key": "llm",
        "redelivered": False,
        "correlation_id": None,
        "session": "first",
    }
    return Delivery(**properties | given, body=body, message_id=message_id, tag=next(tags))


def failed(job: UUID, fence: int = 1) -> Delivery:
    name = f"{job}:failed:{fence}"
    message = AttemptFailed(job_id=job, fence=fence)
    return delivery(Envelope.of(message, id=name, source="filaviva").encode(), name)


class Wire:
    """Takes what is published, or does not answer; remembers what was settled."""

    def __init__(self) -> None:
        self.silent = False
        self.refuses: Callable[[Outgoing], bool] = lambda _: False
        self.published: list[Outgoing] = []
        self.settled: list[Delivery] = []

    async def publish(self, messages: Sequence[Outgoing]) -> list[Published]:
        if self.silent:
            return [Unknown("silent")] * len(messages)
        if any(map(self.refuses, messages)):
            return [Offending("does not fit")] * len(messages)
        self.published += messages
        return [CONFIRMED] * len(messages)


@pytest.fixture
def wire() -> Wire:
    return Wire()


def scheduler_of(engine: AsyncEngine, told: Told, wire: Wire, **pace: Any) -> Scheduler:
    return Scheduler(engine, told.announcer, wire, settle=wire.settled.append, **pace)


@pytest.fixture
def scheduler(engine: AsyncEngine, told: Told, wire: Wire) -> Scheduler:
    return scheduler_of(engine, told, wire)


async def test_a_failed_attempt_is_decided_and_then_let_go_of(
    jobs: Jobs, told: Told, wire: Wire, scheduler: Scheduler
) -> None:
    job = await jobs.failing()
    arrived = failed(job)
    scheduler.receive(arrived)

    assert await scheduler.step() == 1

    assert (await jobs.row(job))["state"] == "queued"
    assert wire.settled == [arrived]
    assert [row.job_id for row in told.rows] == [job]
    assert told.changed == {job}
    assert [type(fact) for fact in told.facts] == [JobRequeued]


async def test_a_second_delivery_of_the_same_message_is_counted_and_changes_nothing(
    jobs: Jobs, told: Told, wire: Wire, scheduler: Scheduler
) -> None:
    job = await jobs.failing()
    for _ in range(3):
        scheduler.receive(failed(job))
        scheduler.receive(failed(job))
        await scheduler.step()

    assert len(wire.settled) == 6
    assert (await jobs.row(job))["failures"] == 1
    assert len(told.rows) == 1
    assert told.of(RequestDropped) == [RequestDropped("repeated")] * 5


async def test_a_message_about_an_attempt_that_was_decided_already_is_stale(
    jobs: Jobs, told: Told, wire: Wire, scheduler: Scheduler
) -> None:
    scheduler.receive(failed(await jobs.failing(fence=4), fence=3))
    scheduler.receive(failed(uuid4()))

    await scheduler.step()

    assert len(wire.settled) == 2
    assert told.facts == [RequestDropped("stale")] * 2


async def test_a_message_without_an_id_is_decided_by_its_fence_alone(
    jobs: Jobs, wire: Wire, scheduler: Scheduler
) -> None:
    job = await jobs.failing()
    body = Envelope.of(AttemptFailed(job_id=job, fence=1), id="x", source="y").encode()
    scheduler.receive(delivery(body))
    scheduler.receive(delivery(body))

    await scheduler.step()

    assert (await jobs.row(job))["epoch"] == 2
    assert len(wire.settled) == 2


async def test_whatever_is_ready_is_one_commit_at_most_a_batch(
    jobs: Jobs, engine: AsyncEngine, told: Told, wire: Wire
) -> None:
    scheduler = scheduler_of(engine, told, wire, batch=10)
    for _ in range(25):
        scheduler.receive(failed(await jobs.failing()))

    assert [await scheduler.step() for _ in range(4)] == [10, 10, 5, 0]

    assert len(wire.settled) == 25
    commits = await jobs.all("SELECT DISTINCT xmin::text FROM filaviva.inbox")
    assert len(commits) == 3


def event(**fields: Any) -> bytes:
    given = {"specversion": "1.0", "id": "1", "source": "s", "type": "filaviva.attempt.failed.v1"}
    return json.dumps(given | {"data": {"jobId": str(uuid4()), "fence": 1}} | fields).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\x00\xfe",
        b"{",
        b"[" * 100_000,
        b"null",
        event(type="filaviva.wakeup.v1"),
        event(type="filaviva.attempt.failed.v2"),
        event(data={"jobId": "nonsense", "fence": 1}),
        event(data={"jobId": str(uuid4())}),
        event(data={"jobId": str(uuid4()), "fence": 2**70}),
        event(data={"jobId": str(uuid4()), "fence": -1}),
    ],
    ids=lambda body: repr(body[:20]) if isinstance(body, bytes) else "",
)
async def test_what_nobody_can_read_goes_to_the_dead_letters_as_it_came_and_the_rest_goes_on(
    jobs: Jobs, told: Told, wire: Wire, scheduler: Scheduler, *, body: bytes
) -> None:
    job = await jobs.failing()
    bad = delivery(body, "m1", headers={"x-death": [], "traceparent": "t"})
    scheduler.receive(bad)
    scheduler.receive(failed(job))

    await scheduler.step()

    assert (await jobs.row(job))["state"] == "queued"
    assert len(wire.settled) == 2
    (passed_on,) = wire.published
    assert (passed_on.exchange, passed_on.body) == ("filaviva.dead", body)
    assert (passed_on.message_id, passed_on.headers) == ("m1", {"traceparent": "t"})
    assert len(told.of(RequestUnreadable)) == 1


async def test_a_message_id_that_cannot_be_stored_does_not_fail_its_batch(
    jobs: Jobs, wire: Wire, scheduler: Scheduler
) -> None:
    job = await jobs.failing()
    scheduler.receive(delivery(event(), "nul\0"))
    scheduler.receive(failed(job))

    await scheduler.step()

    assert (await jobs.row(job))["state"] == "queued"
    assert len(wire.published) == 1


async def test_an_unreadable_message_is_kept_until_the_broker_has_taken_it_over(
    engine: AsyncEngine, told: Told, wire: Wire
) -> None:
    scheduler = scheduler_of(engine, told, wire, patience=0.05)
    wire.silent = True
    scheduler.receive(delivery(b"broken"))
    await scheduler.step()
    assert wire.settled == []

    wire.silent = False
    await until(scheduler.step)

    assert len(wire.settled) == 1


async def test_what_the_broker_does_not_take_as_it_came_goes_on_with_its_bytes_alone(
    engine: AsyncEngine, told: Told, wire: Wire
) -> None:
    wire.refuses = lambda message: bool(message.headers)
    scheduler = scheduler_of(engine, told, wire)
    scheduler.receive(delivery(b"broken", "m1", headers={"odd": 2**70}))

    await scheduler.step()

    (passed_on,) = wire.published
    assert (passed_on.body, passed_on.message_id, passed_on.headers) == (b"broken", "m1", {})
    assert len(wire.settled) == 1


async def test_what_the_broker_never_takes_is_kept_and_not_tried_every_few_seconds(
    engine: AsyncEngine, told: Told, wire: Wire
) -> None:
    wire.refuses = lambda _: True
    scheduler = scheduler_of(engine, told, wire, patience=0.01, parked=0.3)
    scheduler.receive(delivery(b"broken"))
    await scheduler.step()
    parked = time.monotonic()

    wire.refuses = lambda _: False
    await until(scheduler.step)

    assert time.monotonic() - parked > 0.2
    assert len(wire.settled) == 1


async def test_one_job_in_other_hands_does_not_keep_the_others(
    jobs: Jobs, engine: AsyncEngine, told: Told, wire: Wire
) -> None:
    scheduler = scheduler_of(engine, told, wire, patience=0.05)
    held, *free = [await jobs.failing() for _ in range(4)]
    for job in (held, *free):
        scheduler.receive(failed(job))
    async with jobs.engine.begin() as connection:
        await connection.exec_driver_sql(
            "SELECT 1 FROM filaviva.jobs WHERE id = $1 FOR SHARE", (held,)
        )
        await scheduler.step()
        assert {(await jobs.row(job))["state"] for job in free} == {"queued"}
        assert len(wire.settled) == 3

    await until(scheduler.step)

    assert (await jobs.row(held))["state"] == "queued"
    assert len(wire.settled) == 4


async def test_nothing_is_let_go_of_while_the_database_is_away(
    jobs: Jobs, told: Told, wire: Wire
) -> None:
    nowhere = connect("postgresql://nobody@127.0.0.1:1/none", name="test")
    scheduler = scheduler_of(nowhere, told, wire)
    for _ in range(3):
        scheduler.receive(failed(await jobs.failing()))

    with pytest.raises(OSError, match="Connect call failed"):
        await scheduler.step()
    with pytest.raises(OSError, match="Connect call failed"):
        await scheduler.step()

    assert wire.settled == []
    await nowhere.dispose()


async def test_a_commit_whose_answer_was_lost_is_found_out_and_not_done_again(
    jobs: Jobs, engine: AsyncEngine, told: Told, wire: Wire
) -> None:
    scheduler = scheduler_of(cast("AsyncEngine", AnswerLost(engine)), told, wire)
    job = await jobs.failing()
    scheduler.receive(failed(job))
    with pytest.raises(ConnectionResetError):
        await scheduler.step()
    assert wire.settled == []

    await scheduler.step()

    assert len(wire.settled) == 1
    assert (await jobs.row(job))["epoch"] == 2
    assert len(await jobs.outbox(job)) == 1


async def test_deliveries_are_decided_again_after_their_transaction_was_killed(
    jobs: Jobs, engine: AsyncEngine, told: Told, wire: Wire
) -> None:
    scheduler = scheduler_of(engine, told, wire, patience=0.1)
    stop = asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop))
    waiting = [await jobs.failing() for _ in range(3)]
    async with jobs.engine.begin() as connection:
        await connection.exec_driver_sql(
            "SELECT 1 FROM filaviva.jobs WHERE id = $1 FOR NO KEY UPDATE", (waiting[0],)
        )
        for job in waiting:
            scheduler.receive(failed(job))
        await until(lambda: kill_who_waits(jobs))

    await until(lambda: len(wire.settled) == 3)

    assert [(await jobs.row(job))["failures"] for job in waiting] == [1, 1, 1]
    stop.set()
    await running


async def kill_who_waits(jobs: Jobs) -> bool:
    killed = await jobs.all(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return bool(killed)


async def test_what_came_over_a_lost_channel_is_left_to_the_broker(
    jobs: Jobs, wire: Wire, scheduler: Scheduler
) -> None:
    old, new = failed(await jobs.failing()), failed(await jobs.failing())
    again = replace(old, session="second", redelivered=True)
    new = replace(new, session="second")
    scheduler.receive(old)

    scheduler.receive(new)
    scheduler.receive(again)
    await scheduler.step()

    assert wire.settled == [new, again]


async def test_an_hour_of_failures_is_worked_off_when_the_scheduler_is_back(
    jobs: Jobs, told: Told, wire: Wire, scheduler: Scheduler
) -> None:
    waiting = [await jobs.failing(ended="1 hour", lease="1 hour") for _ in range(300)]
    stop = asyncio.Event()
    for job in waiting:
        scheduler.receive(failed(job))

    running = asyncio.create_task(scheduler.run(stop))
    await until(lambda: len(wire.settled) == 300)
    stop.set()
    await running

    states = await jobs.all("SELECT DISTINCT state, epoch, failures FROM filaviva.jobs")
    assert states == [{"state": "queued", "epoch": 2, "failures": 1}]
    assert len(told.rows) == 300
    assert all((row.pause_seconds or 0) <= 0 for row in told.rows)


async def test_schedulers_and_sweepers_at_once_decide_each_attempt_once(
    jobs: Jobs, engine: AsyncEngine, told: Told
) -> None:
    wires = [Wire() for _ in range(4)]
    schedulers = [scheduler_of(engine, told, wire, batch=7) for wire in wires]
    sweepers = [
        Sweeper(engine, told.announcer, lease_seconds=15, presence=Steady()) for _ in range(3)
    ]
    waiting = [await jobs.failing(lease="-1 s") for _ in range(40)]
    for number, scheduler in enumerate(schedulers):
        for job in waiting[:: 1 if number % 2 else -1]:
            scheduler.receive(failed(job))

    async def work_off(loop: Scheduler | Sweeper) -> None:
        while await loop.step():
            pass

    await asyncio.gather(*map(work_off, [*schedulers, *sweepers]))

    states = await jobs.all("SELECT DISTINCT state, epoch, fence, failures FROM filaviva.jobs")
    assert states == [{"state": "queued", "epoch": 2, "fence": 2, "failures": 1}]
    assert sorted(row.job_id for row in told.rows if row.job_id) == sorted(waiting)
    assert [len(wire.settled) for wire in wires] == [40] * 4
