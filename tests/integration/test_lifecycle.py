"""Other services are told once of each job that ends, where its policy says so."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.broker.apply import apply
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.database.transaction import transact
from filaviva.operations.stop import stop
from filaviva.relay import Relay
from filaviva_contracts import Envelope
from filaviva_contracts.wire import JobCanceled, JobFailed, JobSucceeded
from filaviva_dlq_handler import job_rows
from filaviva_retry_scheduler.deadlines import expire
from filaviva_retry_scheduler.decide import decide
from filaviva_worker.complete import Completion, complete
from filaviva_worker.release import record_canceled
from fixtures.amqp import channel, drained
from fixtures.retrying import Jobs
from fixtures.waiting import until

LATE = "clock_timestamp() - interval '1 second'"


async def told(jobs: Jobs) -> list[tuple[str, dict[str, Any]]]:
    rows = await jobs.all(
        "SELECT type, data, mandatory FROM filaviva.outbox"
        " WHERE exchange = 'filaviva.lifecycle' ORDER BY id"
    )
    assert not any(row["mandatory"] for row in rows)
    return [(row["type"], row["data"]) for row in rows]


async def completed(jobs: Jobs, *several: UUID, lifecycle: bool = True) -> None:
    async def work(connection: AsyncConnection) -> None:
        done = [Completion(job, 1, "1", lifecycle=lifecycle) for job in several]
        await complete(connection, done)

    await transact(jobs.engine, work)


@pytest.fixture
async def lively(jobs: Jobs) -> Jobs:
    """Jobs whose policy has them told."""
    await jobs.policy(lifecycle=True)
    return jobs


async def test_a_job_that_succeeds_is_told_once_though_its_completion_comes_twice(
    lively: Jobs,
) -> None:
    several = [await lively.running() for _ in range(3)]

    await completed(lively, *several)
    await completed(lively, *several)

    found = await told(lively)
    assert [kind for kind, _ in found] == ["job.succeeded.v1"] * 3
    said = JobSucceeded.model_validate(found[0][1])
    row = await lively.row(said.job_id)
    assert (said.type, said.version, said.tenant) == ("invoice.extract", 1, "default")
    assert (said.attempt, said.finished_at) == (1, row["finished_at"])


async def test_every_other_way_to_end_is_told_too(lively: Jobs) -> None:
    failing = await lively.failing("failed")
    canceling = await lively.running(state="'cancel_requested'")
    waiting, late, limited = [
        await lively.queued(**columns) for columns in ({}, {"deadline": LATE}, {})
    ]
    again = await lively.failing("retry")

    async def work(connection: AsyncConnection) -> None:
        await decide(connection, [(failing, 1), (again, 1)])
        await record_canceled(connection, [(canceling, 1)])
        await stop(connection, [waiting], author="somebody")
        await expire(connection, limit=10)
        await job_rows.fail(connection, {limited: {"class": "lost", "code": "DeliveryLimit"}})

    await transact(lively.engine, work)
    await transact(lively.engine, work)

    found = {UUID(data["jobId"]): (kind, data) for kind, data in await told(lively)}
    assert len(await told(lively)) == 5
    assert {job: kind for job, (kind, _) in found.items()} == {
        failing: "job.failed.v1",
        late: "job.failed.v1",
        limited: "job.failed.v1",
        canceling: "job.canceled.v1",
        waiting: "job.canceled.v1",
    }
    assert JobFailed.model_validate(found[failing][1]).error_code == "ServerError"
    JobCanceled.model_validate(found[waiting][1])


async def test_nothing_is_told_where_nobody_asked_for_it(jobs: Jobs) -> None:
    await jobs.policy(base=1)

    await completed(jobs, await jobs.running(), lifecycle=False)
    waiting = await jobs.queued()
    await transact(jobs.engine, lambda c: stop(c, [waiting], author="somebody"))

    assert await told(jobs) == []


async def test_what_is_told_is_for_whoever_listens_and_nobody_is_no_fault(
    lively: Jobs, vhost: str
) -> None:
    topology = Topology()
    await apply(vhost, topology.declarations([]))
    publisher = Publisher(vhost)
    relay = Relay(lively.engine, publisher, pause=timedelta(seconds=0.05))
    await completed(lively, await lively.running())
    await until(relay.step)
    assert await told(lively) == []

    job = await lively.running()
    async with channel(vhost) as other:
        await other.queue_declare("theirs")
        await other.queue_bind("theirs", topology.lifecycle, "job.succeeded.v1")
        await completed(lively, job)
        await until(relay.step)

        (message,) = await drained(vhost, "theirs")
    event = Envelope.decode(bytes(message.body))
    assert (event.type, event.source, event.subject) == ("job.succeeded.v1", "filaviva", str(job))
    assert json.loads(event.data)["jobId"] == str(job)
    await publisher.close()
