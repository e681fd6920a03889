"""Every station on a database that refuses an event written without its job's lock.

The number of an event is drawn when it is inserted. Were it inserted by somebody who does not hold
the job's row, a later number could be committed first, and who follows the stream by its numbers
would never see the earlier one.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import notify
from filaviva.broker.topology import Topology
from filaviva.database.transaction import transact
from filaviva.operations.requeue import requeue
from filaviva.operations.submit import Submitter
from filaviva.outcome import Failure, Retry
from filaviva.turns import OPEN
from filaviva_retry_scheduler import deadlines, moved, parked
from filaviva_retry_scheduler.decide import decide
from filaviva_worker.claim import claim
from filaviva_worker.complete import Completion, complete
from filaviva_worker.context import LiveContext
from filaviva_worker.failure import FailedAttempt, fail
from filaviva_worker.live import Live
from filaviva_worker.release import record_canceled, release
from filaviva_worker.wakeup import WakeUp
from fixtures.dying import Morgue
from fixtures.running import claimed, tools
from fixtures.statements import modules
from fixtures.submissions import submission
from fixtures.waiting import until

TOPOLOGY = Topology()
FAILURE = Retry(Failure("upstream", "ServerError", "it broke"))


class Stations:
    """Each station's statements, on one job."""

    def __init__(self, morgue: Morgue) -> None:
        self.morgue = morgue
        self.engine = morgue.engine

    async def do(self, work: Callable[[AsyncConnection], Awaitable[Any]]) -> Any:
        """Commit a piece of work."""
        return await transact(self.engine, work)

    async def submit(self) -> UUID:
        """Submit a job."""
        wanted = submission(idempotency_key=uuid4().hex, type="invoice.extract", queue="llm")
        return (await Submitter(self.engine, lambda _: None).submit(wanted)).job_id

    async def claim(self, job: UUID) -> int:
        """Claim it, whatever its pause; give the fence."""
        await self.morgue.all("UPDATE filaviva.jobs SET not_before = NULL WHERE id = :id", id=job)
        row = await self.morgue.row(job)
        wake = WakeUp(uuid4().hex, job, row["epoch"], row["type"], row["version"], row["queue"])
        claims = await self.do(
            lambda c: claim(c, [wake], worker="w", claim_id=uuid4(), lease_seconds=15)
        )
        fence: int = claims.claimed[job].fence
        return fence

    async def context(self, job: UUID) -> LiveContext:
        """The context of its present attempt."""
        mine = await claimed(self.morgue, job)
        return LiveContext(mine, Live(mine.id, mine.fence, 1e9), tools(self.engine))


@pytest.fixture
def stations(morgue: Morgue) -> Stations:
    return Stations(morgue)


@pytest.mark.usefixtures("events_under_lock")
async def test_the_trap_springs(morgue: Morgue) -> None:
    job = await morgue.queued()

    with pytest.raises(DBAPIError, match="without the lock of its job"):
        await morgue.all(
            "INSERT INTO filaviva.job_events (job_id, kind) VALUES (:id, 'state')", id=job
        )


@pytest.mark.usefixtures("events_under_lock")
async def test_from_submission_to_result_each_event_is_written_under_the_lock(
    stations: Stations,
) -> None:
    job = await stations.submit()
    fence = await stations.claim(job)
    await stations.do(lambda c: fail(c, [FailedAttempt(job, fence, FAILURE)], TOPOLOGY))
    await stations.do(lambda c: decide(c, [(job, fence)]))
    fence = await stations.claim(job)
    ctx = await stations.context(job)
    await ctx.step("one", int)
    await ctx.progress(1, 2)
    await stations.do(lambda c: release(c, [(job, fence)], TOPOLOGY))
    fence = await stations.claim(job)
    await stations.do(lambda c: complete(c, [Completion(job, fence, '"ok"')]))

    told = [
        data.get("status") for kind, data in await stations.morgue.events(job) if kind == "state"
    ]
    assert told == ["queued", "running", "queued", "running", "queued", "running", "succeeded"]


@pytest.mark.usefixtures("events_under_lock")
async def test_from_death_to_replay_and_cancel_each_event_is_written_under_the_lock(
    stations: Stations,
) -> None:
    morgue = stations.morgue
    job = await morgue.queued(max_attempts=1)
    fence = await stations.claim(job)
    await stations.do(lambda c: fail(c, [FailedAttempt(job, fence, FAILURE)], TOPOLOGY))
    await stations.do(lambda c: decide(c, [(job, fence)]))
    await morgue.file(await morgue.dead(job))
    await stations.do(lambda c: requeue(c, [job], author="ana", reason="again"))
    fence = await stations.claim(job)
    await morgue.all("UPDATE filaviva.jobs SET state = 'cancel_requested' WHERE id = :id", id=job)
    await stations.do(lambda c: record_canceled(c, [(job, fence)]))

    states = [data.get("status") for _, data in await morgue.events(job)]
    assert states == ["running", "failed", "queued", "running", "canceled"]


@pytest.mark.usefixtures("events_under_lock")
async def test_what_is_swept_parked_moved_and_lost_writes_its_events_under_the_lock(
    stations: Stations,
) -> None:
    morgue = stations.morgue
    late = await morgue.queued(deadline="now() - interval '1 s'")
    await stations.do(lambda c: deadlines.expire(c, limit=9))
    lost = await morgue.running(lease="-1 s")
    await stations.do(lambda c: decide(c, [(lost, 1)], expired=True))
    innocent = await morgue.queued(delivery_limits=2)
    await morgue.file(await morgue.wake_up(innocent, "delivery_limit"))
    unread = await morgue.queued(version=2)
    await morgue.file(await morgue.wake_up(unread, "rejected"))
    await morgue.worker(
        queues="ARRAY['llm']", reads="""'[{"type": "invoice.extract", "min": 1, "max": 2}]'"""
    )
    await stations.do(lambda c: parked.release_readable(c, OPEN, limit=9, alive_seconds=30))
    missing = await morgue.queued(parked_reason="'queue_missing'")
    await stations.do(lambda c: parked.release_on(c, OPEN, ["llm"], limit=9))
    astray = await morgue.queued(queue="'old'")
    await morgue.policy()
    await stations.do(lambda c: moved.follow(c, OPEN, limit=9))

    for job, events in (
        (late, 1),
        (lost, 2),
        (innocent, 1),
        (unread, 2),
        (missing, 1),
        (astray, 1),
    ):
        assert len(await morgue.events(job)) == events, json.dumps(await morgue.events(job))


@asynccontextmanager
async def everything_heard(url: str) -> AsyncIterator[list[tuple[str, str]]]:
    """Listen to every channel that one of our modules names."""
    channels = {
        value
        for module in modules()
        for name, value in vars(module).items()
        if name.endswith("CHANNEL") and str(value).startswith("filaviva_")
    }
    assert notify.CHANNEL in channels
    heard: list[tuple[str, str]] = []
    connection = await asyncpg.connect(url)
    for channel in channels:
        await connection.add_listener(channel, lambda *told: heard.append((told[2], told[3])))
    yield heard
    await connection.close()


async def test_submit_claim_fail_and_complete_notify_nobody(
    database: str, stations: Stations
) -> None:
    # A commit that notifies holds a lock that all others wait for; a process tells of many changes
    # at once, in a transaction of its own.
    async with everything_heard(database) as heard:
        job = await stations.submit()
        fence = await stations.claim(job)
        ctx = await stations.context(job)
        await ctx.step("one", int)
        await stations.do(lambda c: fail(c, [FailedAttempt(job, fence, FAILURE)], TOPOLOGY))
        await stations.do(lambda c: decide(c, [(job, fence)]))
        fence = await stations.claim(job)
        await stations.do(lambda c: complete(c, [Completion(job, fence, None)]))
        # Notifications come in the order of the commits: after this one none is on its way.
        await stations.morgue.all("SELECT pg_notify(:channel, 'last')", channel=notify.CHANNEL)
        await until(lambda: heard)

    assert heard == [(notify.CHANNEL, "last")]
