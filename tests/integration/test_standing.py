"""A job runs only while the key that submitted it may still submit such a job."""

import asyncio
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.operations import keys
from filaviva.standing import Standing
from fixtures.journey import Journey
from fixtures.retrying import Jobs
from fixtures.waiting import until


async def key(engine: AsyncEngine, *types: str) -> str:
    made = await keys.create(
        engine, name="k", tenant="acme", scopes=["jobs:write"], types=types or None
    )
    return made.id


async def test_a_revoked_an_expired_and_a_limited_key_are_refused_each_with_its_reason(
    jobs: Jobs,
) -> None:
    engine = jobs.engine
    good, revoked, expired, limited = [await key(engine) for _ in range(3)] + [
        await key(engine, "invoice.extract")
    ]
    await keys.revoke(engine, revoked)
    await jobs.all(
        "UPDATE filaviva.api_keys SET expires_at = clock_timestamp() WHERE id = :id", id=expired
    )
    standing = Standing(engine)

    await standing.step()

    assert standing.refusal(good, "mail.send") is None
    assert standing.refusal(limited, "invoice.extract") is None
    assert standing.refusal("the-os-user", "mail.send") is None
    assert standing.refusal(None, "mail.send") is None
    assert "revoked" in (standing.refusal(revoked, "mail.send") or "")
    assert "expired" in (standing.refusal(expired, "mail.send") or "")
    assert "mail.send" in (standing.refusal(limited, "mail.send") or "")


async def test_a_revocation_is_known_at_once_and_long_before_the_next_poll(jobs: Jobs) -> None:
    mine = await key(jobs.engine)
    standing = Standing(jobs.engine, poll=3600)
    stop = asyncio.Event()
    running = asyncio.create_task(standing.run(stop))
    listens = "SELECT count(*) AS n FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"

    async def listening() -> bool:
        return bool((await jobs.one(listens))["n"])

    await until(listening)
    await keys.revoke(jobs.engine, mine)
    await until(lambda: standing.refusal(mine, "mail.send"), seconds=5)
    stop.set()
    await running


@pytest.mark.timeout(180)
async def test_a_job_whose_key_was_revoked_meanwhile_is_a_dead_letter_and_never_runs(
    journey: Journey,
) -> None:
    await journey.start_all("producer", "retry-scheduler", "dlq-handler")
    job = await journey.submit()
    revoked = journey.token.split("_")[1]
    await journey.books.execute(
        "UPDATE filaviva.api_keys SET revoked_at = clock_timestamp() WHERE id = $1", revoked
    )

    await journey.start_all("worker")

    assert await journey.final(job) == {job: "failed"}
    assert await journey.executions(job) == 0
    assert await until(lambda: reason(journey, job)) == "forbidden"


async def reason(journey: Journey, job: UUID) -> str | None:
    found: str | None = await journey.value(
        "SELECT reason FROM filaviva.dead_letters WHERE job_id = $1", job
    )
    return found
