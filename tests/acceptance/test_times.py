"""Jobs that begin later, end by a deadline, come by the calendar, call back: all services."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from fixtures.journey import Journey
from fixtures.receiver import Receiver
from fixtures.waiting import until

pytestmark = [pytest.mark.alone, pytest.mark.timeout(120)]


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def test_jobs_begin_when_they_should_or_expire_and_schedules_survive_a_killed_scheduler(
    journey: Journey, receiver: Receiver
) -> None:
    journey.environment |= {
        "FILAVIVA_CALLBACKS__SECRET": "s" * 32,
        "FILAVIVA_CALLBACKS__ALLOW_HTTP": "true",
        "FILAVIVA_CALLBACKS__ALLOW_PRIVATE": "true",
    }
    await journey.start_all("producer", "dlq-handler")
    journey.start("retry-scheduler", failpoints="calendar.before_commit=exit")
    hourly = {
        "name": "hourly",
        "cron": f"{datetime.now(UTC).minute} * * * *",
        "type": "ledger.work",
        "data": {},
    }
    made = await journey.call("producer", "POST", "/v1/schedules", json=hourly)
    assert made.status_code == 201, made.text
    # It is due now; the scheduler that finds it first dies before its commit.
    await journey.books.execute(
        "UPDATE filaviva.schedules SET next_fire_at = date_trunc('minute', now())"
    )
    late = await journey.submit(deadline=soon(1), callbackUrl=receiver.url)
    await until(lambda: not journey.now("retry-scheduler").alive)
    await journey.start_all("retry-scheduler")

    async def expired() -> bool:
        letter = "SELECT 1 FROM filaviva.dead_letters WHERE job_id = $1 AND reason = 'expired'"
        return bool(await journey.value(letter, late))

    await until(expired)
    await journey.start_all("worker")
    later = await journey.submit(runAt=soon(2), deadline=soon(60))
    await journey.succeeded(later)

    job = await journey.row(later)
    assert 0 <= (job["started_at"] - job["not_before"]).total_seconds() < 1.5
    answer = await journey.call("producer", "GET", f"/v1/jobs/{late}")
    assert answer.json()["status"] == "failed"
    assert answer.json()["error"]["code"] == "DeadlineExpired"
    assert answer.json()["startedAt"] is None
    (fired,) = await journey.fetch("SELECT id FROM filaviva.jobs WHERE labels @> $1", _OF_HOURLY)
    by_calendar = UUID(str(fired["id"]))
    await journey.succeeded(by_calendar)
    await until(lambda: receiver.received)
    (got,) = receiver.received
    assert json.loads(got.body)["data"]["jobId"] == str(late)
    assert await journey.effects(late, later, by_calendar) == {late: 0, later: 1, by_calendar: 1}


_OF_HOURLY = '{"schedule": "hourly"}'
