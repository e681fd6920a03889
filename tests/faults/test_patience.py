"""Jobs that outlive the broker's patience with a consumer."""

import asyncio
from pathlib import Path

import pytest

from filaviva.dev import broker43
from filaviva.dev.broker import Version
from fixtures.journey import Journey
from fixtures.lone import opened
from fixtures.slack import SlackStandIn


@pytest.mark.timeout(300)
async def test_a_job_of_90_s_runs_once_with_a_consumer_timeout_of_20_s(
    tmp_path: Path, slack: SlackStandIn
) -> None:
    await asyncio.to_thread(broker43.debian_root)

    # Both brokers at once: the job is what takes long.
    async with asyncio.TaskGroup() as group:
        for version in ("system", "4.3"):
            group.create_task(_outlives(tmp_path / version, slack, version))


async def _outlives(folder: Path, slack: SlackStandIn, version: Version) -> None:
    async with opened(folder, slack, version=version, consumer_timeout_ms=20_000) as lone:
        journey = lone.journey
        for name in ("producer", "retry-scheduler", "dlq-handler"):
            journey.start(name)
        journey.start("worker", FILAVIVA_WORKER__DETACH_AFTER_SECONDS="8")
        for name in journey.services:
            await journey.now(name).ready()
        await _runs_once(journey)


async def _runs_once(journey: Journey) -> None:
    long = await journey.submit("patient", seconds=90)
    short = await journey.submit()

    states = await journey.final(long, short, seconds=150)
    afterwards = await journey.submit()
    await journey.final(afterwards)

    assert set(states.values()) == {"succeeded"}
    assert await journey.executions(long) == 1
    assert await journey.effects(long, short) == {long: 1, short: 1}
    assert (await journey.row(long))["attempt"] == 1
