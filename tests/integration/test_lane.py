"""The lane on real servers: slots bound the work, and no delivery is lost, doubled or hoarded."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from filaviva import App, Contract, Policy, wakeups
from filaviva.broker.apply import apply
from filaviva.broker.messages import Outgoing
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.database import connect
from filaviva.database.transaction import transact
from filaviva.notify import Notifier
from filaviva.operations.cancel import cancel
from filaviva.outbox import OutboxRow, add
from filaviva.relay import Relay
from filaviva.settings import BrokerSettings, PostgresSettings, Settings, WorkerGroup
from filaviva.telemetry.metrics import Metrics
from filaviva_worker.worker import Worker
from fixtures.amqp import Proxy, ready
from fixtures.retrying import Jobs
from fixtures.waiting import until

TOPOLOGY = Topology()
QUEUE = TOPOLOGY.work("llm")


class Extract(Contract, type="invoice.extract", version=1):
    """The contract of the jobs that the fixture `jobs` stores."""


class Gates:
    """A handler that runs until its job is let through."""

    def __init__(self) -> None:
        self.runs: list[UUID] = []
        self.running: set[UUID] = set()
        self.most = 0
        self.deaf: set[UUID] = set()  # these ignore that they are canceled
        self.in_transaction = 0  # so many of the first ones run in a transaction of their own
        self._open: dict[UUID, asyncio.Event] = {}
        self.app = App("shop")
        self.app.handler(Extract, queue="llm", policy=Policy(timeout=60))(self.work)

    async def work(self, _job: Extract, ctx: Any) -> None:
        self.runs.append(ctx.job_id)
        self.running.add(ctx.job_id)
        self.most = max(self.most, len(self.running))
        try:
            while ctx.job_id in self.deaf and not self.gate(ctx.job_id).is_set():
                with suppress(asyncio.CancelledError):
                    await self.gate(ctx.job_id).wait()
            if len(self.runs) > self.in_transaction:
                await self.gate(ctx.job_id).wait()
                return
            async with ctx.transaction():
                await self.gate(ctx.job_id).wait()
        finally:
            self.running.discard(ctx.job_id)

    def gate(self, job: UUID) -> asyncio.Event:
        return self._open.setdefault(job, asyncio.Event())

    def let(self, *several: UUID) -> None:
        for job in several:
            self.gate(job).set()


class Ground:
    """A database and a virtual host, set up, and what the test starts on them."""

    def __init__(self, jobs: Jobs, database: str, vhost: str) -> None:
        self.jobs = jobs
        self.database = database
        self.vhost = vhost
        self.gates = Gates()
        self.publisher = Publisher(vhost)
        self.relay = Relay(jobs.engine, self.publisher)

    async def queued(self, count: int = 1, **columns: Any) -> list[UUID]:
        """Store jobs and publish their wake-ups."""
        several = [await self.jobs.queued(**columns) for _ in range(count)]
        await self.wake(*several)
        return several

    async def wake(self, *several: UUID, copies: int = 1) -> None:
        """Publish the wake-ups of jobs, at once even when they are not due."""
        await transact(self.jobs.engine, lambda c: self._add(c, several, copies))
        await self.jobs.all("UPDATE filaviva.outbox SET locked_until = clock_timestamp()")
        await until(self._published)

    async def _published(self) -> bool:
        """Publish, unless the worker's relay was faster."""
        await self.relay.step()
        return not await self.jobs.all("SELECT id FROM filaviva.outbox")

    async def _add(self, connection: Any, several: Any, copies: int) -> list[OutboxRow]:
        found = await connection.execute(
            text("SELECT * FROM filaviva.jobs WHERE id = ANY(:ids)"), {"ids": list(several)}
        )
        return await add(
            connection,
            [
                wakeups.wake_up(
                    job_id=row.id,
                    epoch=row.epoch,
                    issue=row.issue + copy,
                    type=row.type,
                    version=row.version,
                    queue=row.queue,
                    priority=row.priority,
                    correlation_id=row.correlation_id,
                )
                for row in found
                for copy in range(copies)
            ],
        )

    @asynccontextmanager
    async def worker(
        self,
        *,
        slots: int = 2,
        broker: str = "",
        detach_after: float = 600,
        grace: float = 0.2,
        cancel_limit: float = 30,
    ) -> AsyncIterator[Worker]:
        """A worker that runs for as long as the block; it drains at its end."""
        settings = Settings(
            app="unused:app",
            broker=BrokerSettings(url=broker or self.vhost),
            postgres=PostgresSettings(url=self.database),
            worker=WorkerGroup(
                concurrency=slots,
                lease_seconds=3,
                detach_after_seconds=detach_after,
                grace_seconds=grace,
                cancel_grace_seconds=0.1,
                cancel_limit_seconds=cancel_limit,
            ),
        )
        engine = connect(self.database, name="worker", size=8)
        transactions = connect(self.database, name="handlers", size=8)
        relay = Relay(engine, self.publisher)
        worker = Worker(
            self.gates.app,
            settings,
            engine=engine,
            transactions=transactions,
            relay=relay,
            notifier=Notifier(engine),
            metrics=Metrics(),
        )
        stop, after = asyncio.Event(), asyncio.Event()
        relaying = asyncio.create_task(relay.run(after))
        running = asyncio.create_task(worker.run(stop))
        try:
            await until(lambda: all(each.attached for each in worker.consumers))
            yield worker
        finally:
            stop.set()
            await asyncio.wait_for(running, 30)
            after.set()
            await relaying
            await transactions.dispose()
            await engine.dispose()

    async def states(self) -> dict[UUID, str]:
        return {
            row["id"]: row["state"]
            for row in await self.jobs.all("SELECT id, state FROM filaviva.jobs")
        }

    async def all_succeeded(self) -> bool:
        return set((await self.states()).values()) == {"succeeded"}

    async def all_ready(self, count: int) -> bool:
        """So many wake-ups wait for whoever comes."""
        await self.relay.step()
        return await ready(self.vhost, QUEUE) == count

    async def empty(self) -> bool:
        """Nothing is ready, and nothing on its way."""
        waiting = await self.jobs.one("SELECT count(*) AS n FROM filaviva.outbox")
        return waiting["n"] == 0 and await ready(self.vhost, QUEUE) == 0


@pytest.fixture
async def ground(jobs: Jobs, database: str, vhost: str) -> AsyncIterator[Ground]:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    made = Ground(jobs, database, vhost)
    yield made
    await made.publisher.close()


async def test_no_more_jobs_run_than_there_are_slots_and_all_of_them_end(ground: Ground) -> None:
    several = await ground.queued(9)

    async with ground.worker(slots=3):
        await until(lambda: len(ground.gates.running) == 3)
        assert await ready(ground.vhost, QUEUE) == 6  # what finds no slot waits where all can see
        ground.gates.let(*several)
        await until(ground.all_succeeded)

    assert ground.gates.most == 3
    assert sorted(ground.gates.runs) == sorted(several)
    assert await ground.empty()


async def test_handlers_that_sit_in_transactions_keep_nobody_from_being_claimed_and_recorded(
    ground: Ground,
) -> None:
    ground.gates.in_transaction = 8
    sitting = await ground.queued(8)

    async with ground.worker(slots=10):
        await until(lambda: len(ground.gates.running) == 8)
        others = await ground.queued(5)
        ground.gates.let(*others)

        async def recorded() -> bool:
            states = await ground.states()
            return {states[job] for job in others} == {"succeeded"}

        await until(recorded, seconds=5)
        ground.gates.let(*sitting)
        await until(ground.all_succeeded)


async def test_copies_of_a_running_jobs_wake_up_are_let_go_and_it_runs_once(
    ground: Ground,
) -> None:
    (job,) = await ground.queued()

    async with ground.worker(slots=2) as worker:
        await until(lambda: ground.gates.running)
        await ground.wake(job, copies=20)
        await until(lambda: duplicates(worker) == 20)
        ground.gates.let(job)
        await until(ground.all_succeeded)

    assert ground.gates.runs == [job]
    assert await ground.empty()


def duplicates(worker: Worker) -> float:
    found = worker._metrics.duplicates.labels("worker", "duplicate")  # noqa: SLF001
    return float(found._value.get())  # noqa: SLF001


async def test_a_job_decided_again_before_its_old_run_has_ended_here_is_not_forgotten(
    ground: Ground,
) -> None:
    (job,) = await ground.queued()

    async with ground.worker(slots=2):
        await until(lambda: ground.gates.running)
        await ground.jobs.all(
            "UPDATE filaviva.jobs SET state = 'queued', epoch = 2, fence = fence + 1, issue = 1"
        )
        await ground.wake(job)
        await until(lambda: ground.gates.runs == [job, job])
        assert ground.gates.most == 1  # never two local tasks for one job
        ground.gates.let(job)
        await until(ground.all_succeeded)

    row = await ground.jobs.row(job)
    assert (row["attempt"], row["epoch"]) == (2, 2)


async def test_after_a_lost_connection_a_delivery_without_a_slot_goes_back_for_others(
    ground: Ground,
) -> None:
    (first,) = await ground.queued()
    async with Proxy(ground.vhost) as way, ground.worker(slots=1, broker=way.url):
        await until(lambda: ground.gates.running)
        (second,) = await ground.queued()
        way.cut()  # the new channel knows nothing of the job that still runs

        async def handed_on() -> bool:
            return bool((await ground.jobs.row(second))["issue"] > 1)

        await until(handed_on)
        assert (await ground.states())[second] == "queued"
        ground.gates.let(first, second)
        await until(ground.all_succeeded)

    assert ground.gates.runs == [first, second]
    assert (await ground.jobs.row(second))["epoch"] == 1


async def test_a_long_job_lives_on_without_its_message_and_its_slot_stays_taken(
    ground: Ground,
) -> None:
    (long,) = await ground.queued()

    async with ground.worker(slots=2, detach_after=0.3) as worker:
        await until(lambda: prefetch(worker) == 1)
        short = await ground.queued(4)
        await until(lambda: len(ground.gates.running) == 2)
        ground.gates.let(*short)
        await until(lambda: len(ground.gates.runs) == 5)
        assert (await ground.states())[long] == "running"
        ground.gates.let(long)
        await until(ground.all_succeeded)
        await until(lambda: prefetch(worker) == 2)

    assert ground.gates.most == 2
    assert await ground.empty()


async def test_beside_a_detached_job_only_as_many_are_held_as_can_run(ground: Ground) -> None:
    (long,) = await ground.queued()

    async with ground.worker(slots=3, detach_after=2) as worker:
        await until(lambda: ground.gates.running)
        await until(lambda: worker.lanes[0]._room._held[long].since + 1 < time.monotonic())  # noqa: SLF001
        beside = await ground.queued(2)
        await until(lambda: len(ground.gates.running) == 3)
        waiting = await ground.queued(4)
        await until(lambda: prefetch(worker) != 3)
        assert await ready(ground.vhost, QUEUE) == 4  # where an idle worker would find them

        ground.gates.let(*beside, *waiting)
        await until(lambda: len(ground.gates.runs) == 7)
        ground.gates.let(long)
        await until(ground.all_succeeded)

    assert {(await ground.jobs.row(job))["issue"] for job in waiting} == {1}
    assert await ground.empty()


async def test_the_message_of_a_detached_job_does_not_come_again(ground: Ground) -> None:
    (long,) = await ground.queued()

    async with (
        Proxy(ground.vhost) as way,
        ground.worker(slots=2, broker=way.url, detach_after=0.3) as worker,
    ):
        await until(lambda: prefetch(worker) == 1)
        way.cut()
        (next_one,) = await ground.queued()
        await until(lambda: next_one in ground.gates.running)
        assert duplicates(worker) == 0
        ground.gates.let(long, next_one)
        await until(ground.all_succeeded)

    assert await ground.empty()


def prefetch(worker: Worker) -> int:
    return worker.lanes[0]._prefetch  # noqa: SLF001


async def test_a_worker_whose_slots_all_live_on_takes_nothing_that_others_could_run(
    ground: Ground,
) -> None:
    (long,) = await ground.queued()

    async with ground.worker(slots=1, detach_after=0.3) as worker:
        await until(lambda: prefetch(worker) == 0)
        (other,) = await ground.queued()
        assert await ready(ground.vhost, QUEUE) == 1
        assert (await ground.jobs.row(other))["issue"] == 1
        ground.gates.let(long, other)
        await until(ground.all_succeeded)

    assert await ground.empty()


async def test_a_wake_up_before_its_time_comes_again_for_the_rest_and_never_early(
    ground: Ground,
) -> None:
    job = await ground.jobs.queued(not_before="clock_timestamp() + interval '1.5 s'")
    ground.gates.let(job)

    async with ground.worker():
        await ground.wake(job)
        await until(ground.all_succeeded)

    row, attempt = await ground.jobs.row(job), await ground.jobs.attempt(job)
    assert attempt["started_at"] >= row["not_before"]
    assert (row["attempt"], row["epoch"]) == (1, 1)
    assert row["issue"] >= 2


async def test_a_version_that_only_another_worker_reads_goes_back_for_a_second(
    ground: Ground,
) -> None:
    await ground.jobs.worker(
        id="'newer'",
        queues="ARRAY['llm']",
        reads="""'[{"type": "invoice.extract", "min": 1, "max": 2}]'""",
    )
    async with ground.worker():
        (job,) = await ground.queued(version=2)

        async def handed_back() -> bool:
            return bool((await ground.jobs.row(job))["issue"] > 1)

        await until(handed_back)
        row = await ground.jobs.row(job)

    assert 0 < (row["not_before"] - row["now"]).total_seconds() <= 1
    assert (row["state"], row["attempt"], row["epoch"]) == ("queued", 0, 1)
    assert await ready(ground.vhost, TOPOLOGY.dead_letters) == 0


async def test_a_version_that_nobody_reads_goes_to_the_dead_letters(ground: Ground) -> None:
    async with ground.worker():
        (job,) = await ground.queued(version=2)
        await until(lambda: ready(ground.vhost, TOPOLOGY.dead_letters))

    assert (await ground.jobs.row(job))["attempt"] == 0


@pytest.mark.parametrize("what", ["bytes", "type"])
async def test_what_is_no_wake_up_goes_to_the_dead_letters_and_the_next_one_runs(
    ground: Ground, what: str
) -> None:
    body = {"bytes": b"\xff\x00{", "type": b'{"type": "some.event.v1", "data": {}}'}[what]
    await ground.publisher.publish(
        [Outgoing(exchange=TOPOLOGY.jobs, routing_key="llm", body=body, message_id="m", type="x")]
    )

    async with ground.worker():
        (job,) = await ground.queued()
        ground.gates.let(job)
        await until(ground.all_succeeded)
        await until(lambda: ready(ground.vhost, TOPOLOGY.dead_letters))


async def test_a_stopped_worker_gives_its_jobs_back_at_once_and_counts_no_failure(
    ground: Ground,
) -> None:
    several = await ground.queued(5)
    loop = asyncio.get_running_loop()

    async with ground.worker(slots=2, grace=0.2):
        await until(lambda: len(ground.gates.running) == 2)
        began = set(ground.gates.running)
        stopped = loop.time()
    assert loop.time() - stopped < 8  # not the ten seconds that a stuck delivery would be awaited

    assert set((await ground.states()).values()) == {"queued"}
    for job in several:
        row = await ground.jobs.row(job)
        assert (row["failures"], row["losses"]) == (0, 0)
        assert row["epoch"] == (2 if job in began else 1)
    await until(lambda: ground.all_ready(5))


async def test_a_worker_stopped_in_the_middle_of_a_claim_hands_its_deliveries_back(
    ground: Ground,
) -> None:
    (job,) = await ground.queued()
    loop = asyncio.get_running_loop()

    async with ground.jobs.engine.begin() as holder:
        await holder.execute(text("SELECT 1 FROM filaviva.jobs FOR UPDATE"))
        async with ground.worker():
            await until(lambda: _waits_for_a_lock(ground))
            stopped = loop.time()
        assert loop.time() - stopped < 8

    assert (await ground.states())[job] == "queued"
    await until(lambda: ground.all_ready(1))


async def test_after_a_lost_channel_the_new_delivery_of_a_waiting_job_is_the_one_that_is_held(
    ground: Ground,
) -> None:
    (job,) = await ground.queued()

    async with ground.jobs.engine.begin() as holder:
        await holder.execute(text("SELECT 1 FROM filaviva.jobs FOR UPDATE"))
        async with Proxy(ground.vhost) as way, ground.worker(broker=way.url) as worker:
            await until(lambda: _waits_for_a_lock(ground))
            way.cut()
            await until(lambda: duplicates(worker) == 1)
            assert await ready(ground.vhost, QUEUE) == 0
        # Nobody has claimed it: its wake-up must wait for the next worker.
        await until(lambda: ground.all_ready(1))

    assert (await ground.states())[job] == "queued"


async def test_a_job_whose_row_somebody_holds_does_not_keep_the_others(ground: Ground) -> None:
    held, *others = await ground.queued(4)
    ground.gates.let(held, *others)

    async with ground.jobs.engine.connect() as holder:
        await holder.execute(
            text("SELECT 1 FROM filaviva.jobs WHERE id = :id FOR UPDATE"), {"id": held}
        )
        async with ground.worker(slots=4):
            await until(lambda: set(ground.gates.runs) == set(others), seconds=20)
            await holder.rollback()
            await until(ground.all_succeeded, seconds=20)


async def _waits_for_a_lock(ground: Ground) -> bool:
    found = await ground.jobs.one(
        "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'worker' AND wait_event_type = 'Lock'"
    )
    return bool(found["n"])


async def test_work_that_ends_within_the_grace_period_is_done(ground: Ground) -> None:
    (job,) = await ground.queued()
    loop = asyncio.get_running_loop()

    async with ground.worker(grace=20):
        await until(lambda: ground.gates.running)
        loop.call_later(0.3, ground.gates.let, job)

    assert (await ground.states())[job] == "succeeded"
    assert ground.gates.runs == [job]


async def test_a_job_whose_claim_a_crash_took_back_runs_again_at_once(ground: Ground) -> None:
    (job,) = await ground.queued()

    async with ground.worker():
        await until(lambda: job in ground.gates.running)
        await ground.jobs.all("UPDATE filaviva.jobs SET state = 'queued', attempt = 0, fence = 0")
        await ground.jobs.all("TRUNCATE filaviva.attempts")
        await until(lambda: len(ground.gates.runs) == 2)  # the heartbeat finds its fence void
        ground.gates.let(job)
        await until(ground.all_succeeded)

    assert ground.gates.runs == [job, job]


async def deaf(ground: Ground) -> UUID:
    """A job that runs here and does not hear of its cancel."""
    job = await ground.jobs.queued()
    ground.gates.deaf.add(job)  # before it can begin
    await ground.wake(job)
    await until(lambda: job in ground.gates.running)
    return job


async def test_a_canceled_handler_that_does_not_stop_gives_its_slot_back(ground: Ground) -> None:
    async with ground.worker(cancel_limit=0.3) as worker:
        job = await deaf(ground)
        await transact(ground.jobs.engine, lambda c: cancel(c, [job], author="ana"))
        await until(lambda: len(worker.abandoned) == 1)
        assert worker.slots == (0, 2)

        others = await ground.queued(2)
        await until(lambda: ground.gates.running == {job, *others})
        shown = worker._metrics.registry.get_sample_value  # noqa: SLF001 - the test's own
        labels = {"type": "invoice.extract", "cause": "canceled"}
        assert shown("filaviva_handlers_abandoned_total", labels) == 1
        assert not worker.worn_out

        ground.gates.let(job, *others)
        await until(lambda: len(worker.abandoned) == 0)
        await until(lambda: worker.slots == (0, 2))
    row = await ground.jobs.row(job)
    assert (row["state"], row["lease_expires_at"] < row["now"]) == ("cancel_requested", True)
    assert await ground.all_ready(0), "its delivery is let go of"


async def test_a_handler_that_goes_on_without_its_lease_gives_its_slot_back(
    ground: Ground,
) -> None:
    async with ground.worker(cancel_limit=0.3) as worker:
        job = await deaf(ground)
        taken = "UPDATE filaviva.jobs SET state = 'queued', fence = fence + 1, epoch = epoch + 1"
        await ground.jobs.all(taken)
        await until(lambda: len(worker.abandoned) == 1)

        await ground.wake(job)
        ground.gates.deaf.clear()
        await until(lambda: ground.gates.runs.count(job) == 2)
        ground.gates.let(job)
        await until(ground.all_succeeded)
    assert len(worker.abandoned) == 0


async def test_a_worker_with_as_many_deaf_handlers_as_slots_ends_itself(ground: Ground) -> None:
    async with ground.worker(slots=1, cancel_limit=0.3) as worker:
        job = await deaf(ground)
        await transact(ground.jobs.engine, lambda c: cancel(c, [job], author="ana"))

        await until(lambda: worker.worn_out)
        ground.gates.let(job)
