"""The overview: known jobs, and what it says of them."""

import json
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.operations import overview
from filaviva.operations.overview.figures import Chosen, Count, Overview, Queue
from filaviva_retry_scheduler import figures
from fixtures.retrying import Jobs


@pytest.fixture
async def contracts(jobs: Jobs) -> None:
    for kind, queue in (("invoice.extract", "llm"), ("mail.send", "mail")):
        await jobs.all(
            "INSERT INTO filaviva.contracts (type, version, app, queue, schema, policy)"
            " VALUES (:type, 1, 'shop', :queue, '{}', '{\"timeout\": 600}')",
            type=kind,
            queue=queue,
        )


async def look(engine: AsyncEngine, **chosen: tuple[str, ...]) -> Overview:
    async with engine.begin() as connection:
        return await overview.look(connection, Chosen(**chosen))


async def queue(engine: AsyncEngine, name: str = "llm", **chosen: tuple[str, ...]) -> Queue:
    return next(each for each in (await look(engine, **chosen)).queues if each.name == name)


async def worker(jobs: Jobs, name: str = "w1", **columns: Any) -> None:
    values = {"queues": "ARRAY['llm']", "slots": 4, "busy": 1} | columns
    await jobs.all(
        f"INSERT INTO filaviva.workers (id, service, app, host, pid, {', '.join(values)})"
        f" VALUES ('{name}', 'worker', 'shop', 'h', 1, {', '.join(map(str, values.values()))})"
    )


@pytest.mark.usefixtures("contracts")
async def test_a_queue_tells_what_waits_pauses_is_parked_and_runs(jobs: Jobs) -> None:
    old = await jobs.queued(queued_at="now() - interval '10 minutes'")
    await jobs.queued(queued_at="now() - interval '1 minute'")
    late = await jobs.queued(
        queued_at="now() - interval '1 hour'", not_before="now() - interval '2 minutes'", attempt=2
    )
    await jobs.queued(not_before="now() + interval '30 s'")
    await jobs.queued(not_before="now() + interval '1 hour'")
    await jobs.queued(parked_reason="'limit'", queued_at="now() - interval '1 day'")
    await jobs.queued(state="'succeeded'")
    await jobs.running()
    await jobs.running(state="'cancel_requested'", cancel_requested_at="now() - interval '9 s'")

    found = await queue(jobs.engine)

    assert (found.waiting, found.paused, found.running) == (Count(3), Count(2), Count(2))
    assert found.parked == {"limit": Count(1)}
    assert found.oldest is not None
    assert found.oldest.job_id == old
    assert found.oldest.seconds == pytest.approx(600, abs=5)
    assert found.overdue is not None
    assert found.overdue.job_id == late
    assert found.overdue.seconds == pytest.approx(120, abs=5)
    assert found.next_due == pytest.approx(30, abs=5)


@pytest.mark.usefixtures("contracts")
async def test_a_queue_is_shown_that_nobody_knows_but_its_jobs(jobs: Jobs) -> None:
    await jobs.queued(queue="'lost'")

    found = await look(jobs.engine)

    assert [each.name for each in found.queues] == ["llm", "lost", "mail"]
    assert (await queue(jobs.engine, "lost")).waiting == Count(1)


@pytest.mark.usefixtures("contracts")
async def test_a_look_reads_so_much_and_takes_the_rest_from_who_counts_for_all(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview.waiting, "MOST", 20)
    monkeypatch.setattr(overview.waiting, "_LEAST", 10)
    await jobs.all(
        "INSERT INTO filaviva.jobs (id, tenant, type, version, queue, max_attempts, payload,"
        " fingerprint, idempotency_key, correlation_id) SELECT gen_random_uuid(), 'default',"
        " 'invoice.extract', 1, 'llm', 5, '{}', '', n, '' FROM generate_series(1, 30) AS n"
    )

    found = await queue(jobs.engine)

    assert found.waiting == Count(10, more=True)

    async with jobs.engine.begin() as connection:
        await figures.count(connection, ["invoice.extract"])

    assert (await queue(jobs.engine)).waiting == Count(30, about=True)
    assert (await queue(jobs.engine, types=("mail.send",), name="mail")).waiting == Count(0)

    await jobs.all("UPDATE filaviva.counted SET at = now() - interval '3 minutes'")

    assert (await queue(jobs.engine)).waiting == Count(10, more=True)


@pytest.mark.usefixtures("contracts")
async def test_what_runs_is_told_with_its_step_its_ages_and_its_limit(jobs: Jobs) -> None:
    job = await jobs.running(attempt=3, lease="-60 s", lease_owner="'decision'")
    await jobs.all("UPDATE filaviva.attempts SET started_at = now() - interval '20 minutes'")
    await jobs.all(
        "INSERT INTO filaviva.steps (job_id, revision, name, attempt, state, started_at) VALUES"
        " (:job, 1, 'fetch', 3, 'succeeded', now()),"
        " (:job, 1, 'read', 3, 'running', now() - interval '15 minutes')",
        job=job,
    )

    found = await look(jobs.engine)

    (running,) = found.running
    assert (running.job_id, running.attempt, running.worker) == (job, 3, "w1")
    assert (running.step, running.limit) == ("read", 600)
    assert running.seconds == pytest.approx(1200, abs=5)
    assert running.step_seconds == pytest.approx(900, abs=5)
    assert running.expired == pytest.approx(60, abs=5)
    assert found.expired == 1


@pytest.mark.usefixtures("contracts")
async def test_workers_are_told_with_slots_by_queue_and_who_is_silent_or_drains_counts_no_more(
    jobs: Jobs,
) -> None:
    await worker(jobs, queues="ARRAY['llm', 'mail']", slots=8)
    await worker(jobs, "silent", last_seen_at="now() - interval '1 minute'")
    await worker(jobs, "leaving", draining_at="now() - interval '10 s'")
    await worker(jobs, "gone", stopped_at="now()")

    found = await look(jobs.engine)
    llm = await queue(jobs.engine)

    assert sorted(each.id for each in found.workers) == ["leaving", "silent", "w1"]
    assert (llm.workers, llm.draining, llm.slots) == (1, 1, 4)


@pytest.mark.usefixtures("contracts")
async def test_rates_are_what_the_workers_counted_and_what_came_and_died(jobs: Jobs) -> None:
    work = {
        "queue": "llm",
        "type": "invoice.extract",
        "started": 60,
        "succeeded": 30,
        "retry": 20,
        "failed": 10,
        "costUsd": 1.5,
    }
    for name in ("w1", "w2"):
        lately = json.dumps({"seconds": 60, "work": [work]})
        await worker(jobs, name, lately=f"'{lately}'")
    for _ in range(6):
        await jobs.queued()
    await jobs.queued(created_at="now() - interval '2 minutes'")
    await letter(jobs)

    rate = (await look(jobs.engine)).rate("llm")

    assert (rate.started, rate.succeeded, rate.retried) == (2, 1, pytest.approx(2 / 3))
    assert rate.submitted == pytest.approx(0.1)
    assert rate.died == pytest.approx(1 / 60)
    assert rate.failing == pytest.approx(0.5)
    assert rate.usd_per_minute == pytest.approx(3)
    assert rate.left == pytest.approx(4 / 3)


async def letter(jobs: Jobs, kind: str = "invoice.extract", *, age: str = "0 s") -> UUID:
    found = await jobs.one(
        "WITH g AS (INSERT INTO filaviva.failure_groups (id, fingerprint, type, reason, message)"
        " VALUES (filaviva.uuid7(), gen_random_uuid(), :kind, 'terminal', 'it broke')"
        " RETURNING id)"
        " INSERT INTO filaviva.dead_letters (id, type, reason, group_id, created_at)"
        " SELECT filaviva.uuid7(), :kind, 'terminal', g.id,"
        " now() - CAST(CAST(:age AS text) AS interval) FROM g RETURNING id",
        kind=kind,
        age=age,
    )
    return UUID(bytes=found["id"].bytes)


@pytest.mark.usefixtures("contracts")
async def test_open_letters_are_told_with_their_causes_the_oldest_first(jobs: Jobs) -> None:
    oldest = await letter(jobs, age="3 hours")
    await letter(jobs)
    await letter(jobs, "mail.send")

    found = (await look(jobs.engine)).letters

    assert (found.oldest_id, found.open) == (oldest, Count(3))
    assert found.oldest_seconds == pytest.approx(3 * 3600, abs=5)
    assert [cause.message for cause in found.causes] == ["it broke"] * 3
    assert (await queue(jobs.engine)).letters == Count(2)


async def test_messages_that_lie_are_told_and_those_that_the_broker_refuses_apart(
    jobs: Jobs,
) -> None:
    await jobs.all(
        "INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, created_at,"
        " parked_at, error) VALUES"
        " ('filaviva.jobs', 'x', '1', 't', '{}', now() - interval '1 hour', now(), 'no queue'),"
        " ('filaviva.jobs', 'llm', '2', 't', '{}', now() - interval '1 minute', NULL, NULL)"
    )

    found = (await look(jobs.engine)).outbox

    assert (found.pending, found.parked, found.error) == (Count(1), 1, "no queue")
    assert found.oldest_route == "filaviva.jobs llm"
    assert found.oldest_seconds == pytest.approx(60, abs=5)


@pytest.mark.usefixtures("contracts")
async def test_only_what_was_chosen_is_told(jobs: Jobs) -> None:
    await jobs.queued()
    await jobs.queued(type="'mail.send'", queue="'mail'")
    await jobs.running(type="'mail.send'", queue="'mail'")
    await worker(jobs)

    by_queue = await look(jobs.engine, queues=("mail",))
    by_type = await look(jobs.engine, types=("invoice.extract",))

    assert [each.name for each in by_queue.queues] == ["mail"]
    assert (by_queue.workers, len(by_queue.running)) == ([], 1)
    assert [(each.name, each.waiting) for each in by_type.queues] == [("llm", Count(1))]
    assert by_type.running == []


_MANY = """
INSERT INTO filaviva.jobs (id, tenant, type, version, queue, state, max_attempts, payload,
    fingerprint, idempotency_key, correlation_id, not_before)
SELECT filaviva.uuid7(), 'default', 'invoice.extract', 1, 'llm',
    CASE n % 2 WHEN 0 THEN 'queued' ELSE 'succeeded' END, 5, '{}', '', n, '',
    CASE n % 4 WHEN 0 THEN now() + interval '1 h' END
FROM generate_series(1, 12000) AS n;
INSERT INTO filaviva.failure_groups (id, fingerprint, reason, message)
VALUES (filaviva.uuid7(), 'f', 'terminal', 'm');
INSERT INTO filaviva.dead_letters (id, reason, group_id)
SELECT filaviva.uuid7(), 'terminal', id FROM filaviva.failure_groups, generate_series(1, 3000);
INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data)
SELECT 'filaviva.jobs', 'llm', n, 't', '{}' FROM generate_series(1, 3000) AS n
"""
_READ = """
SELECT relname::text AS name, seq_tup_read + idx_tup_fetch AS rows
FROM pg_stat_xact_user_tables WHERE schemaname = 'filaviva'
"""


@pytest.mark.usefixtures("contracts")
async def test_a_look_reads_the_same_few_rows_however_many_there_are(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in (overview.waiting, overview.pace, overview.resting):
        monkeypatch.setattr(part, "MOST", 200)
    for statement in _MANY.split(";"):
        await jobs.all(statement)

    some = Count(200, more=True)

    for statistics in ("SELECT 1", "ANALYZE filaviva.jobs, filaviva.outbox, filaviva.dead_letters"):
        await jobs.all(statistics)
        await jobs.engine.dispose()  # new sessions plan anew
        async with jobs.engine.begin() as connection:
            found = await overview.look(connection, Chosen())
            read = await connection.exec_driver_sql(_READ)
            rows = {row.name: row.rows for row in read}

        assert (found.letters.open, found.outbox.pending) == (some, some)
        assert rows["jobs"] < 1000
        assert max(rows["dead_letters"], rows["outbox"]) < 1000
