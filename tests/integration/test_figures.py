"""The figures: counted in the database by one process for all."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.telemetry.metrics import Metrics
from filaviva_retry_scheduler import counting, figures
from filaviva_retry_scheduler.counting import Counting
from fixtures.retrying import Jobs
from fixtures.waiting import until

KIND = "invoice.extract"


class Counted:
    """One process that counts, and what it shows."""

    def __init__(self, engine: AsyncEngine, *, every: float = 0.05, silence: float = 150) -> None:
        self.metrics = Metrics()
        self.counting = Counting(engine, self.metrics, every=every, silence=silence)

    def shown(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"filaviva_{name}", labels)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        running = asyncio.create_task(self.counting.run(stop))
        yield
        stop.set()
        await running


@pytest.fixture
async def counted(jobs: Jobs) -> Counted:
    await jobs.all(
        "INSERT INTO filaviva.contracts (type, version, app, queue, schema)"
        " VALUES (:type, 1, 'shop', 'llm', '{}')",
        type=KIND,
    )
    return Counted(jobs.engine)


@pytest.fixture
def asked(jobs: Jobs) -> Iterator[list[str]]:
    """Every statement that the database is asked."""
    statements: list[str] = []

    def keep(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(jobs.engine.sync_engine, "before_cursor_execute", keep)
    yield statements
    event.remove(jobs.engine.sync_engine, "before_cursor_execute", keep)


async def test_jobs_are_counted_by_what_they_wait_for(counted: Counted, jobs: Jobs) -> None:
    for columns in (
        {"queued_at": "now() - interval '10 minutes'"},
        {"not_before": "now() + interval '1 hour'"},
        {"parked_reason": "'limit'"},
        {"state": "'succeeded'"},
    ):
        await jobs.queued(**columns)
    await jobs.running(started_at="now() - interval '5 minutes'")
    await jobs.running(state="'cancel_requested'", cancel_requested_at="now() - interval '9 s'")

    assert await counted.counting.step() == 5

    states = ("queued", "paused", "parked", "running", "cancel_requested")
    assert [counted.shown("jobs", type=KIND, state=state) for state in states] == [1] * 5
    for state, age in (("queued", 600), ("running", 300), ("cancel_requested", 9)):
        since = counted.shown("job_oldest_timestamp_seconds", type=KIND, state=state) or 0
        assert abs(time.time() - since - age) < 5


async def test_what_is_known_and_does_not_wait_is_zero(counted: Counted) -> None:
    await counted.counting.step()

    assert counted.shown("jobs", type=KIND, state="queued") == 0
    assert counted.shown("job_oldest_timestamp_seconds", type=KIND, state="queued") == 0
    assert counted.shown("dead_letters_open", type=KIND, reason="terminal") == 0
    assert counted.shown("outbox_oldest_timestamp_seconds") == 0
    assert counted.shown("workers", state="silent") == 0


async def test_dead_letters_of_types_that_nobody_publishes_are_one_series(
    counted: Counted, jobs: Jobs
) -> None:
    await jobs.all(
        "WITH g AS (INSERT INTO filaviva.failure_groups (id, fingerprint, reason, message)"
        " VALUES (gen_random_uuid(), 'f', 'unknown_type', 'm') RETURNING id)"
        " INSERT INTO filaviva.dead_letters (id, type, reason, group_id, created_at)"
        " SELECT gen_random_uuid(), 'made.up.n' || n, 'unknown_type', g.id,"
        " now() - interval '1 day'"
        " FROM g, generate_series(1, 5) AS n"
    )

    await counted.counting.step()

    assert counted.shown("dead_letters_open", type="unknown", reason="unknown_type") == 5
    since = counted.shown("dead_letter_oldest_timestamp_seconds", type="unknown") or 0
    assert abs(time.time() - since - 86_400) < 5
    assert counted.shown("dead_letters_open", type="made.up.n1", reason="unknown_type") is None


async def test_what_somebody_snoozes_is_counted_and_has_no_age(
    counted: Counted, jobs: Jobs
) -> None:
    for days in (2, 1):
        await jobs.all(
            "WITH g AS (INSERT INTO filaviva.failure_groups (id, fingerprint, reason, message)"
            f" VALUES (gen_random_uuid(), 'f{days}', 'terminal', 'm') RETURNING id)"
            " INSERT INTO filaviva.dead_letters (id, type, reason, group_id, created_at)"
            f" SELECT gen_random_uuid(), '{KIND}', 'terminal', g.id, now() - interval '{days} day'"
            " FROM g"
        )

    async def shown(snoozed: str) -> tuple[float, float]:
        await jobs.all(
            "UPDATE filaviva.failure_groups SET state = 'snoozed',"
            f" snoozed_until = now() + interval '1 hour' WHERE fingerprint LIKE '{snoozed}'"
        )
        await counted.counting.step()
        since = counted.shown("dead_letter_oldest_timestamp_seconds", type=KIND) or 0.0
        letters = counted.shown("dead_letters_open", type=KIND, reason="terminal") or 0.0
        return letters, round((time.time() - since) / 86_400) if since else 0

    assert await shown("none") == (2, 2)
    assert await shown("f2") == (2, 1)
    assert await shown("f%") == (2, 0)
    await jobs.all("UPDATE filaviva.failure_groups SET snoozed_until = now() - interval '1 s'")
    assert await shown("none") == (2, 2)


async def test_figures_are_told_though_the_database_takes_no_row(
    counted: Counted, jobs: Jobs
) -> None:
    await jobs.all("ALTER TABLE filaviva.counted ADD CONSTRAINT full_disk CHECK (false) NOT VALID")
    async with counted.at_work():
        await until(lambda: counted.shown("outbox_pending") == 0)
    await jobs.all("ALTER TABLE filaviva.counted DROP CONSTRAINT full_disk")


async def test_one_process_counts_and_another_follows_when_it_is_gone(
    jobs: Jobs, asked: list[str]
) -> None:
    first, second = Counted(jobs.engine), Counted(jobs.engine)

    async with second.at_work():
        async with first.at_work():
            both = (first, second)
            await until(lambda: any(one.shown("outbox_pending") == 0 for one in both))
            turns = asked.count(counting.LEAD)
            # Who counts has what it asked for: this is the other one, again and again.
            await until(lambda: asked.count(counting.LEAD) >= turns + 3)
            assert sorted(one.shown("outbox_pending") is None for one in both) == [False, True]
        await until(lambda: second.shown("outbox_pending") == 0)
        assert first.shown("outbox_pending") is None


async def test_who_is_not_heard_of_any_more_counts_no_more(jobs: Jobs) -> None:
    silent, other = Counted(jobs.engine, every=60, silence=0.2), Counted(jobs.engine)

    async with silent.at_work():
        await until(lambda: silent.shown("outbox_pending") == 0)
        async with other.at_work():
            await until(lambda: other.shown("outbox_pending") == 0)


_CUT_WHO_COUNTS = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objid = x'66696c62'::int AND database = (
    SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def test_who_counts_goes_on_when_its_session_is_ended(counted: Counted, jobs: Jobs) -> None:
    async with counted.at_work():
        for _ in range(5):
            await until(lambda: counted.shown("outbox_pending") == 0)
            cut = await jobs.all(_CUT_WHO_COUNTS)
            await until(lambda: counted.shown("outbox_pending") is None)
            assert len(cut) == 1
        await until(lambda: counted.shown("outbox_pending") == 0)


@pytest.mark.parametrize("statement", [figures.JOBS, figures.LETTERS], ids=["jobs", "letters"])
async def test_what_has_ended_is_not_read(jobs: Jobs, statement: str) -> None:
    async with jobs.engine.begin() as connection:
        found = await connection.exec_driver_sql(f"EXPLAIN {statement}")
        plan = "\n".join(found.scalars().all())

    assert "Seq Scan" not in plan, plan
    assert "_pkey" not in plan, plan
