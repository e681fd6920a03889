"""Limits on running jobs: never one too many, and a free place is taken soon."""

import asyncio
from collections import Counter
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import transact
from filaviva.limits import Limit, TenantLimits
from filaviva.operations import places
from filaviva.operations.releasing import Releasing
from filaviva.outbox import OutboxRow
from filaviva_worker.claim import Claims, Verdict, claim
from filaviva_worker.claimer import Claimer
from filaviva_worker.limited import Claiming, Limited
from filaviva_worker.wakeup import WakeUp
from fixtures.journey import Journey
from fixtures.retrying import Jobs
from fixtures.waiting import until


def wake(job: UUID, epoch: int = 1) -> WakeUp:
    return WakeUp(f"{job}:{epoch}:1", job, epoch, "invoice.extract", 1, "llm")


def held(engine: AsyncEngine, **by_tenant: int) -> TenantLimits:
    limits = TenantLimits(engine)
    limits.hold({(tenant, ""): Limit(running=many) for tenant, many in by_tenant.items()})
    return limits


async def claims(limits: TenantLimits, jobs: Jobs, ids: list[UUID], worker: str = "w") -> Claims:
    how = Claiming(worker, uuid4(), 15, suspect_too=True)
    wakes = [wake(job) for job in ids]
    return await Limited(jobs.engine, limits).claim(wakes, how, asyncio.Event())


async def states(jobs: Jobs) -> Counter[tuple[str, str | None]]:
    rows = await jobs.all("SELECT state, parked_reason FROM filaviva.jobs")
    return Counter((row["state"], row["parked_reason"]) for row in rows)


async def release(jobs: Jobs, limits: TenantLimits, tenant: str = "acme") -> list[OutboxRow]:
    return await transact(jobs.engine, lambda on: places.release(on, limits, tenant))


async def test_many_workers_at_once_never_claim_more_than_the_limit(jobs: Jobs) -> None:
    limits = held(jobs.engine, acme=3)
    ids = [await jobs.queued(tenant="'acme'") for _ in range(40)]

    found = await asyncio.gather(
        *(claims(limits, jobs, ids[n : n + 4], f"w{n}") for n in range(0, 40, 4))
    )

    assert sum(len(each.claimed) for each in found) == 3
    assert await states(jobs) == {("running", None): 3, ("queued", "limit"): 37}
    verdicts = Counter(verdict for each in found for verdict in each.others.values())
    assert verdicts == {Verdict.LIMITED: 37}


async def test_the_ordinary_claim_leaves_limited_tenants_apart_and_takes_the_others(
    jobs: Jobs,
) -> None:
    mine, theirs = await jobs.queued(tenant="'acme'"), await jobs.queued(tenant="'other'")

    async def work(connection: AsyncConnection, *apart: str) -> Claims:
        wakes = [wake(mine), wake(theirs)]
        return await claim(
            connection, wakes, worker="w", claim_id=uuid4(), lease_seconds=15, apart=apart
        )

    everybody = await transact(jobs.engine, lambda on: work(on, "*"))
    assert set(everybody.others.values()) == {Verdict.LIMITED}
    one = await transact(jobs.engine, lambda on: work(on, "acme"))
    assert (set(one.claimed), one.others) == ({theirs}, {mine: Verdict.LIMITED})


async def test_one_suspect_is_taken_at_a_time_limited_or_not(jobs: Jobs) -> None:
    limits = held(jobs.engine, acme=2)
    ids = [await jobs.queued(tenant=f"'{whose}'", losses=3) for whose in ("other", "acme")]
    claimer = Claimer(jobs.engine, Limited(jobs.engine, limits), worker="w", lease_seconds=15)

    found = await claimer.claim([wake(job) for job in ids], asyncio.Event(), suspect_too=True)

    assert found is not None
    assert len(found.claimed) == 1
    assert [*found.others.values()] == [Verdict.SUSPECT]


async def test_a_subject_at_its_limit_leaves_the_tenants_places_to_the_others(jobs: Jobs) -> None:
    limits = TenantLimits(jobs.engine)
    limits.hold({("acme", ""): Limit(running=5), ("acme", "*"): Limit(running=2)})
    ann = [await jobs.queued(tenant="'acme'", subject="'ann'") for _ in range(6)]
    bob = [await jobs.queued(tenant="'acme'", subject="'bob'") for _ in range(6)]

    found = await claims(limits, jobs, ann + bob)

    assert len(found.claimed.keys() & set(ann)) == 2
    assert len(found.claimed.keys() & set(bob)) == 2


async def test_a_free_place_is_found_behind_a_thousand_subjects_that_have_none(jobs: Jobs) -> None:
    limits = TenantLimits(jobs.engine)
    limits.hold({("acme", "*"): Limit(running=1)})
    await jobs.all(
        "INSERT INTO filaviva.jobs (id, tenant, type, version, queue, max_attempts, payload,"
        " fingerprint, idempotency_key, correlation_id, subject, state, lease_expires_at,"
        " parked_reason)"
        " SELECT filaviva.uuid7(), 'acme', 'invoice.extract', 1, 'llm', 5, '{}', '', n || state,"
        " 'c', 'ann' || lpad(CAST(n AS text), 4, '0'), state,"
        " CASE state WHEN 'running' THEN now() END, CASE state WHEN 'queued' THEN 'limit' END"
        " FROM generate_series(1, 1100) AS n, unnest(ARRAY['running', 'queued']) AS state"
    )
    free = await jobs.queued(tenant="'acme'", subject="'zoe'", parked_reason="'limit'")

    rows = await release(jobs, limits)

    assert [row.job_id for row in rows] == [free]


async def test_a_flood_of_high_priority_does_not_keep_the_low_for_ever(jobs: Jobs) -> None:
    limits = held(jobs.engine, acme=1)
    high = {"tenant": "'acme'", "parked_reason": "'limit'", "priority": 8}
    low = await jobs.queued(
        **{**high, "priority": 0}, created_at="clock_timestamp() - interval '15 minutes'"
    )
    before = await jobs.queued(**high, created_at="clock_timestamp() - interval '6 minutes'")
    after = await jobs.queued(**high, created_at="clock_timestamp() - interval '4 minutes'")

    order = []
    for _ in range(3):
        (row,) = await release(jobs, limits)
        order.append(row.job_id)
        await jobs.all("UPDATE filaviva.jobs SET state = 'canceled' WHERE id = :id", id=row.job_id)

    assert order == [before, low, after]


async def test_every_end_of_a_run_releases_the_next_and_not_one_more(jobs: Jobs) -> None:
    limits = held(jobs.engine, acme=2)
    ids = [await jobs.queued(tenant="'acme'") for _ in range(10)]
    first = await claims(limits, jobs, ids)
    assert await release(jobs, limits) == []

    await jobs.all(
        "UPDATE filaviva.jobs SET state = 'succeeded' WHERE id = :id", id=next(iter(first.claimed))
    )
    (row,) = await release(jobs, limits)
    again = await release(jobs, limits)

    assert again == [], "who was released and not claimed yet has the place"
    assert (row.job_id, row.epoch) == (ids[2], 2)
    job = await jobs.row(ids[2])
    assert (job["parked_reason"], job["epoch"], job["issue"]) == (None, 2, 1)


async def test_a_released_job_that_is_canceled_gives_its_place_back(jobs: Jobs) -> None:
    limits = held(jobs.engine, acme=1)
    ids = [await jobs.queued(tenant="'acme'", parked_reason="'limit'") for _ in range(2)]

    (first,) = await release(jobs, limits)
    await jobs.all("UPDATE filaviva.jobs SET state = 'canceled' WHERE id = :id", id=first.job_id)
    (second,) = await release(jobs, limits)

    assert [first.job_id, second.job_id] == ids


async def test_released_are_the_urgent_first_and_within_them_the_oldest(jobs: Jobs) -> None:
    limits = held(jobs.engine, acme=2)
    await jobs.queued(tenant="'acme'", parked_reason="'limit'")
    urgent = await jobs.queued(tenant="'acme'", parked_reason="'limit'", priority=8)
    await jobs.queued(tenant="'acme'", parked_reason="'limit'", priority=0)

    rows = await release(jobs, held(jobs.engine, acme=1))
    assert [row.job_id for row in rows] == [urgent]
    assert len(await release(jobs, limits)) == 1


async def test_without_the_limit_everybody_is_released_at_the_next_look(jobs: Jobs) -> None:
    for tenant in ("acme", "other"):
        for _ in range(3):
            await jobs.queued(tenant=f"'{tenant}'", parked_reason="'limit'")
    rows: list[OutboxRow] = []
    releasing = Releasing(jobs.engine, TenantLimits(jobs.engine), rows.extend, poll=1)

    assert await releasing.step() == 6
    assert await states(jobs) == {("queued", None): 6}
    assert len(rows) == 6


async def test_a_batch_that_runs_takes_no_place(jobs: Jobs) -> None:
    await jobs.queued(tenant="'acme'", state="'running'")
    job = await jobs.queued(tenant="'acme'")

    assert set((await claims(held(jobs.engine, acme=1), jobs, [job])).claimed) == {job}


@pytest.mark.timeout(180)
async def test_two_workers_together_never_run_more_than_the_tenants_limit(
    journey: Journey,
) -> None:
    await journey.books.execute("INSERT INTO filaviva.limits (tenant, running) VALUES ('*', 3)")
    await journey.start_all("producer", "worker", "retry-scheduler")
    second = journey.start("worker")
    await second.ready()

    ids = await asyncio.gather(*(journey.submit(seconds=0.05) for _ in range(24)))
    await journey.succeeded(*ids)

    rows = await journey.fetch("SELECT started_at, finished_at FROM filaviva.attempts")
    moments = [(row["started_at"], 1) for row in rows] + [(row["finished_at"], -1) for row in rows]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    assert most == 3
    assert len(rows) == 24
    workers = await journey.value("SELECT count(DISTINCT worker) FROM filaviva.attempts")
    assert workers == 2
    assert await until(lambda: journey.value("SELECT count(*) = 0 FROM filaviva.outbox"))


async def test_a_limited_claim_is_flushed_as_every_other_commit(jobs: Jobs) -> None:
    limits, setting = held(jobs.engine, acme=1), "SHOW synchronous_commit"
    ids = [await jobs.queued(tenant="'acme'") for _ in range(2)]
    seen: list[str] = []

    @event.listens_for(jobs.engine.sync_engine, "commit")
    def look(connection: Connection) -> None:
        seen.append(str(connection.exec_driver_sql(setting).scalar()))

    await claims(limits, jobs, ids)

    assert seen[-1] == "on"
