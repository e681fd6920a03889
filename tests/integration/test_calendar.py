"""Schedules fire once for each of their times, however many processes look, or none did."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.transaction import transact
from filaviva.limits import Limit, TenantLimits
from filaviva.operations.quotas import Quotas
from filaviva_retry_scheduler import firing
from filaviva_retry_scheduler.calendar import Calendar
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.facts import (
    FiringsHeld,
    FiringsLeftOut,
    FiringsSkipped,
    ScheduleBroken,
    ScheduleFired,
)
from fixtures.retrying import AnswerLost, Jobs, Told
from fixtures.schedules import schedule

AN_HOUR_AGO = "date_trunc('minute', clock_timestamp()) - interval '1 hour'"


@pytest.fixture
async def calendar(jobs: Jobs, told: Told) -> Calendar:
    await jobs.policy(maxAttempts=3)
    return Calendar(jobs.engine, told.announcer)


async def made(jobs: Jobs) -> list[dict[str, object]]:
    return await jobs.all("SELECT * FROM filaviva.jobs ORDER BY idempotency_key")


async def row_of(jobs: Jobs, schedule_id: UUID) -> dict[str, object]:
    return await jobs.one("SELECT * FROM filaviva.schedules WHERE id = :id", id=schedule_id)


async def test_a_due_schedule_submits_its_job_and_moves_on(
    jobs: Jobs, told: Told, calendar: Calendar
) -> None:
    made_by = {"labels": '\'{"schedule"\\: "nightly"}\'', "data": "'{\"total\"\\: 9.90}'"}
    due = await schedule(jobs, priority=8, subject="'ann'", **made_by)
    at = (await row_of(jobs, due))["next_fire_at"]

    await calendar.step()

    (job,) = await made(jobs)
    assert (job["state"], job["queue"], job["priority"]) == ("queued", "llm", 8)
    assert (job["submitted_by"], job["subject"], job["max_attempts"]) == ("key1", "ann", 3)
    assert job["labels"] == {"schedule": "nightly"}
    assert str(job["idempotency_key"]).startswith(f"schedule:{due}:")
    row = await row_of(jobs, due)
    assert row["next_fire_at"] > at  # type: ignore[operator]
    assert (row["last_job_id"], row["fired"]) == (job["id"], 1)
    assert [one.job_id for one in told.rows] == [job["id"]]
    assert len(told.of(ScheduleFired)) == 1
    (use,) = await jobs.all("SELECT type, version, source, uses FROM filaviva.contract_uses")
    sender = f"schedule:{row['name']}"
    assert use == {"type": "invoice.extract", "version": 1, "source": sender, "uses": 1}
    (kind, event), *_ = await jobs.events(job["id"])  # type: ignore[arg-type]
    assert (kind, event["reason"], event["schedule"]) == ("state", "scheduled", str(due))


async def test_what_is_paused_or_not_due_does_not_fire(jobs: Jobs, calendar: Calendar) -> None:
    await schedule(jobs, enabled="false")
    await schedule(jobs, next_fire_at="clock_timestamp() + interval '1 minute'")
    await schedule(jobs, next_fire_at="NULL")

    assert await calendar.step() == 0

    assert await made(jobs) == []


async def test_many_calendars_at_once_fire_each_time_once(
    jobs: Jobs, told: Told, calendar: Calendar
) -> None:
    due = {
        await schedule(jobs, missed="'all'", cron="'* * * * *'", next_fire_at=AN_HOUR_AGO)
        for _ in range(4)
    }
    others = [Calendar(jobs.engine, told.announcer) for _ in range(3)]

    await asyncio.gather(*(each.step() for each in (calendar, *others)))
    await calendar.step()

    found = await made(jobs)
    keys = [str(job["idempotency_key"]) for job in found]
    assert len(keys) in {4 * 61, 4 * 62}  # the minute may turn meanwhile
    assert {UUID(key.split(":")[1]) for key in keys} == due
    assert len(told.rows) == len(found)


async def test_a_firing_whose_commit_had_no_answer_is_not_repeated(
    jobs: Jobs, calendar: Calendar
) -> None:
    await schedule(jobs)
    unsure = AnswerLost(jobs.engine)

    async def fire(connection: AsyncConnection) -> Decided:
        return await firing.fire(connection, await firing.due(connection, limit=9))

    with pytest.raises(ConnectionResetError):
        await transact(unsure, fire)  # type: ignore[arg-type]
    await transact(unsure, fire)  # type: ignore[arg-type]
    await calendar.step()

    assert len(await made(jobs)) == 1


@pytest.mark.parametrize(("missed", "expected"), [("skip", 0), ("once", 1), ("all", 4)])
async def test_an_hour_without_any_scheduler_is_made_up_for_as_the_policy_says(
    jobs: Jobs, told: Told, calendar: Calendar, missed: str, expected: int
) -> None:
    # Every quarter of an hour, the last of them two minutes ago: beyond what counts as in time.
    ago = "clock_timestamp() - interval '2 minutes'"
    minute = f"extract(minute FROM {ago})\\:\\:int % 15"
    due = await schedule(
        jobs,
        missed=f"'{missed}'",
        cron=f"({minute}) || '-59/15 * * * *'",
        next_fire_at=f"date_trunc('minute', {ago}) - interval '45 minutes'",
    )

    await calendar.step()

    found = await made(jobs)
    assert len(found) == expected
    left_out = sum(fact.count for fact in told.of(FiringsLeftOut))  # type: ignore[union-attr]
    assert left_out == 4 - expected
    row = await row_of(jobs, due)
    assert row["last_job_id"] == (found[-1]["id"] if found else None)
    soon = await jobs.one("SELECT clock_timestamp() AS now")
    assert timedelta() < row["next_fire_at"] - soon["now"] < timedelta(minutes=15)  # type: ignore[operator]


async def again(jobs: Jobs, due: UUID) -> None:
    """Let the next time come, and look again at those that wait."""
    await jobs.all(
        "UPDATE filaviva.schedules SET next_fire_at = date_trunc('minute', clock_timestamp()),"
        " cron = '* * * * *', look_again_at = look_again_at - interval '1 hour' WHERE id = :id",
        id=due,
    )


async def test_under_skip_a_time_makes_no_job_while_the_one_before_has_not_ended(
    jobs: Jobs, told: Told, calendar: Calendar
) -> None:
    due = await schedule(jobs, overlap="'skip'")
    await calendar.step()
    await again(jobs, due)

    await calendar.step()

    (job,) = await made(jobs)
    row = await row_of(jobs, due)
    assert (row["fired"], row["skipped"], row["waiting"]) == (1, 1, [])
    assert row["last_skipped_at"] is not None
    assert [one.count for one in told.of(FiringsSkipped)] == [1]  # type: ignore[union-attr]
    await jobs.all("UPDATE filaviva.jobs SET state = 'canceled' WHERE id = :id", id=job["id"])
    await jobs.all("UPDATE filaviva.jobs SET idempotency_key = 'earlier'")
    await again(jobs, due)
    await calendar.step()
    assert (await row_of(jobs, due))["fired"] == 2


async def test_under_queue_a_time_waits_until_the_job_before_has_ended(
    jobs: Jobs, told: Told, calendar: Calendar
) -> None:
    due = await schedule(jobs, overlap="'queue'")
    await calendar.step()
    (first,) = await made(jobs)
    await jobs.all("UPDATE filaviva.jobs SET idempotency_key = 'earlier'")
    await again(jobs, due)
    await calendar.step()
    row = await row_of(jobs, due)
    assert (row["fired"], len(row["waiting"])) == (1, 1)  # type: ignore[arg-type]
    assert row["look_again_at"] is not None
    assert [one.count for one in told.of(FiringsHeld)] == [1]  # type: ignore[union-attr]

    await jobs.all("UPDATE filaviva.jobs SET state = 'canceled' WHERE id = :id", id=first["id"])
    await jobs.all("UPDATE filaviva.schedules SET look_again_at = now() - interval '1 s'")
    await calendar.step()

    row = await row_of(jobs, due)
    assert (row["fired"], row["waiting"], row["look_again_at"]) == (2, [], None)
    assert len(await made(jobs)) == 2


async def test_a_firing_over_its_tenants_limit_waits_and_says_so(jobs: Jobs, told: Told) -> None:
    await jobs.policy(maxAttempts=3)
    limits = TenantLimits(jobs.engine)
    limits.hold({("default", ""): Limit(per_minute=1, burst=1)})
    calendar = Calendar(jobs.engine, told.announcer, quotas=Quotas(limits))
    due = [await schedule(jobs) for _ in range(2)]

    await calendar.step()

    assert len(await made(jobs)) == 1
    rows = [await row_of(jobs, one) for one in due]
    (held,) = [row for row in rows if row["waiting"]]
    assert "tenant default may submit 1 jobs a minute" in str(held["error"])
    limits.hold({})
    await jobs.all("UPDATE filaviva.schedules SET look_again_at = now() - interval '1 s'")
    await calendar.step()
    assert len(await made(jobs)) == 2
    row = await row_of(jobs, held["id"])  # type: ignore[arg-type]
    assert (row["waiting"], row["error"], row["fired"]) == ([], None, 1)


async def test_a_schedule_fires_a_batch(jobs: Jobs, told: Told, calendar: Calendar) -> None:
    items = '\'[{"n"\\: 1.10}, {"n"\\: 2}, {"n"\\: 3}]\''
    due = await schedule(jobs, items=items, batch="'{\"concurrency\"\\: 2}'", subject="'ann'")

    await calendar.step()

    (use,) = await jobs.all("SELECT uses FROM filaviva.contract_uses")
    assert use["uses"] == 3
    found = await jobs.all(
        "SELECT id, payload\\:\\:text, parent_id, parked_reason, subject, max_attempts"
        " FROM filaviva.jobs ORDER BY id"
    )
    parent, *children = found
    assert (await row_of(jobs, due))["last_job_id"] == parent["id"]
    assert [child["payload"] for child in children] == ['{"n": 1.10}', '{"n": 2}', '{"n": 3}']
    assert {child["parent_id"] for child in children} == {parent["id"]}
    assert [job["parked_reason"] for job in found] == ["items", None, None, "concurrency"]
    assert {(job["subject"], job["max_attempts"]) for job in found} == {("ann", 3)}
    assert {row.job_id for row in told.rows} == {child["id"] for child in children[:2]}


async def test_a_schedule_that_cannot_fire_says_why_and_keeps_no_other(
    jobs: Jobs, told: Told, calendar: Calendar
) -> None:
    unknown = await schedule(jobs, version=7)
    broken = await schedule(jobs, time_zone="'Mars/Olympus'")
    # Its job cannot be stored: the handler's policy holds a number that no column takes.
    await jobs.all(
        "INSERT INTO filaviva.contracts (type, version, app, queue, schema, policy)"
        " VALUES ('invoice.extract', 2, 'shop', 'llm', '{}', '{\"maxAttempts\"\\: 0}')"
    )
    unstorable = await schedule(jobs, version=2)
    fine = await schedule(jobs)

    await calendar.step()

    (job,) = await made(jobs)
    assert str(fine) in str(job["idempotency_key"])
    assert "no handler" in str((await row_of(jobs, unknown))["error"])
    row = await row_of(jobs, broken)
    assert "Mars/Olympus" in str(row["error"])
    assert row["next_fire_at"] is None
    assert (await row_of(jobs, unstorable))["fired"] == 0
    assert len(told.of(ScheduleBroken)) == 2
