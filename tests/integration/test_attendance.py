"""A process is seen, with how it is set and what it measures: on a real database."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import httpx2
import pytest

from filaviva.attendance import Attendance
from filaviva.database import connect
from filaviva.service import LoopLag
from filaviva.settings import Settings, read
from filaviva.telemetry.endpoint import Endpoint
from filaviva.telemetry.metrics import Metrics
from filaviva.worst import Worst
from fixtures.amqp import Proxy
from fixtures.retrying import Clock, Jobs
from fixtures.waiting import until

SECRETS = ("sesame", "hooks.slack.test", "c" * 32)


@pytest.fixture
def settings() -> Settings:
    return read(
        Settings,
        {
            "FILAVIVA_BROKER__URL": "amqps://shop:sesame@mq.example/",
            "FILAVIVA_POSTGRES__URL": "postgresql://shop:sesame@db.example/shop",
            "FILAVIVA_SLACK__WEBHOOK_URL": "https://hooks.slack.test/x",
            "FILAVIVA_CALLBACKS__SECRET": "c" * 32,
            "FILAVIVA_ENVIRONMENT": "prod",
        },
    )


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async def problems() -> list[str]:
        return []

    endpoint, stop = (
        Endpoint(Metrics().registry, problems, host="127.0.0.1", port=0),
        asyncio.Event(),
    )
    serving = asyncio.create_task(endpoint.run(stop))
    yield endpoint
    stop.set()
    await serving


@pytest.fixture
def attendance(jobs: Jobs, settings: Settings, endpoint: Endpoint) -> Attendance:
    renewals = Worst()
    renewals.saw(7)
    return Attendance(
        jobs.engine,
        "worker",
        settings,
        endpoint=endpoint,
        lag=LoopLag(Metrics()),
        renewals=renewals,
    )


async def test_a_process_tells_its_settings_and_measurements_but_no_secret(
    attendance: Attendance, jobs: Jobs
) -> None:
    await attendance.step()

    row = await jobs.one("SELECT * FROM filaviva.processes")
    told = json.dumps(row, default=str)
    assert [secret for secret in SECRETS if secret in told] == []
    assert (row["service"], row["settings"]["environment"]) == ("worker", "prod")
    assert (row["settings"]["brokerUser"], row["settings"]["brokerTls"]) == ("shop", True)
    assert row["settings"]["slack"]
    assert row["settings"]["callbacks"]
    assert row["measured"]["renewalGap"] == 7
    assert row["measured"]["databaseTls"] is False
    assert abs(row["measured"]["clockAhead"]) <= row["measured"]["clockDoubt"] + 0.1


async def test_who_has_asked_for_metrics_is_told_with_the_time(
    attendance: Attendance, endpoint: Endpoint, jobs: Jobs
) -> None:
    await attendance.step()
    before = await jobs.one("SELECT scraped_at FROM filaviva.processes")
    async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
        url = f"http://127.0.0.1:{endpoint.port}"
        await client.get(f"{url}/readyz")
        assert endpoint.scraped is None
        await client.get(f"{url}/metrics", headers={"User-Agent": "Prometheus/3.9"})
    await attendance.step()

    after = await jobs.one(
        "SELECT scraped_by, clock_timestamp() - scraped_at < '10 s' AS lately"
        " FROM filaviva.processes"
    )
    assert before == {"scraped_at": None}
    assert after == {"scraped_by": "Prometheus/3.9", "lately": True}


async def test_who_stops_says_so(attendance: Attendance, jobs: Jobs) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(attendance.run(stop))
    await until(lambda: jobs.all("SELECT id FROM filaviva.processes"))
    stop.set()
    await running

    assert await jobs.all("SELECT id FROM filaviva.processes WHERE stopped_at IS NOT NULL")


async def test_a_database_that_is_frozen_keeps_nobody_from_ending(
    database: str, settings: Settings, endpoint: Endpoint
) -> None:
    async with Proxy(database) as way:
        engine = connect(way.url, name="test", size=2)
        seen = Attendance(engine, "worker", settings, endpoint=endpoint, lag=LoopLag(Metrics()))
        await seen.step()
        way.silence()
        stop, began = asyncio.Event(), time.monotonic()
        stop.set()
        await seen.run(stop)
        assert time.monotonic() - began < 5
        way.cut()
        await engine.dispose()


def test_the_worst_of_the_last_hour_is_remembered_and_then_forgotten() -> None:
    clock = Clock()
    worst = Worst(seconds=3600, clock=clock)
    worst.saw(5)
    worst.saw(2)
    seen = [worst.value]
    clock.now += 3600
    worst.saw(1)
    seen.append(worst.value)
    clock.now += 3600
    seen.append(worst.value)
    clock.now += 7200
    seen.append(worst.value)

    assert seen == [5, 5, 1, 0]
