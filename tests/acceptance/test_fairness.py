"""One tenant's flood does not keep another's single job."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from benchmarks.__main__ import submission
from filaviva.app import load_app
from filaviva.broker.depths import QueueDepths
from filaviva.broker.publisher import Publisher
from filaviva.database import connect
from filaviva.operations.setup import setup
from filaviva.operations.submission import Submission
from filaviva.operations.submit import Submitter
from filaviva.relay import Relay
from filaviva.turns import Turns
from fixtures.journey import Journey
from fixtures.waiting import until

pytestmark = [pytest.mark.timeout(180), pytest.mark.alone]

APP = "benchmarks.shop:app"
FLOOD = 5_000


@asynccontextmanager
async def submitting(journey: Journey) -> AsyncIterator[Submitter]:
    """A producer without its HTTP."""
    engine = connect(journey.database, name="test")
    publisher, depths = Publisher(journey.vhost), QueueDepths(journey.vhost)
    relay, turns = Relay(engine, publisher), Turns(engine, depths)
    stop = asyncio.Event()
    running = [asyncio.create_task(loop.run(stop)) for loop in (relay, depths, turns)]
    try:
        await turns.step()
        yield Submitter(engine, relay.hand_over, turns=turns)
    finally:
        stop.set()
        await asyncio.wait(running)
        await publisher.close()
        await engine.dispose()


def job_of(tenant: str, n: int = 0, priority: int = 4) -> Submission:
    return replace(submission("noop", n), tenant=tenant, priority=priority)


async def flood(
    submitter: Submitter, many: int = FLOOD, *, at: datetime | None = None
) -> list[UUID]:
    jobs = [replace(job_of("large", n), not_before=at) for n in range(many)]
    kept = await asyncio.gather(*map(submitter.submit, jobs))
    return [each.job_id for each in kept]


async def prepared(journey: Journey, *, failpoints: str = "") -> None:
    await setup(database_url=journey.database, broker_url=journey.vhost, app=load_app(APP))
    journey.environment["FILAVIVA_APP"] = APP
    await journey.restart("retry-scheduler", failpoints=failpoints)

    async def kept() -> bool:
        keepers = "SELECT count(*) FROM filaviva.turn_keeper WHERE until > now()"
        return bool(await journey.value(keepers))

    await until(kept)


async def waiting(journey: Journey) -> int:
    count: int = await journey.value("SELECT count(*) FROM filaviva.turns")
    return count


@pytest.mark.broker
async def test_a_job_submitted_behind_5000_of_another_tenant_ends_within_2_seconds(
    journey: Journey,
) -> None:
    await prepared(journey)
    async with submitting(journey) as submitter:
        await flood(submitter)
        low = [(await submitter.submit(job_of("large", n, priority=0))).job_id for n in range(10)]
        await journey.start_all("worker")
        started = time.monotonic()
        one = (await submitter.submit(job_of("small"))).job_id
        await journey.succeeded(one)
        seconds = time.monotonic() - started
        await journey.succeeded(*low)
        left = await waiting(journey)

    assert seconds < 2
    assert left > 0, "the flood was over before: nothing is shown"


@pytest.mark.soak
async def test_a_job_submitted_when_5000_of_another_tenant_come_due_ends_within_2_seconds(
    journey: Journey,
) -> None:
    await prepared(journey)
    await journey.start_all("worker")
    async with submitting(journey) as submitter:
        await flood(submitter, at=datetime.now(UTC) + timedelta(seconds=8))
        upcoming = await journey.value("SELECT count(*) FROM filaviva.upcoming")

        async def due() -> bool:
            return await waiting(journey) > 0

        await until(due)
        started = time.monotonic()
        one = (await submitter.submit(job_of("small"))).job_id
        await journey.succeeded(one)
        seconds = time.monotonic() - started
        left = await waiting(journey)

    assert upcoming > FLOOD / 2
    assert seconds < 2
    assert left > 0, "the flood was over before: nothing is shown"


async def test_killing_who_gives_the_turns_loses_none(journey: Journey) -> None:
    await prepared(journey, failpoints="turn.committed=exit@3")
    await journey.start_all("worker")
    async with submitting(journey) as submitter:
        many = await flood(submitter, 500)
        await until(lambda: not journey.now("retry-scheduler").alive)
        left = await waiting(journey)
        await journey.start_all("retry-scheduler")
        await journey.succeeded(*many)

    assert left > 0
    attempts = await journey.value("SELECT count(*) FROM filaviva.attempts")
    assert attempts == len(many)
