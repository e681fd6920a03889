"""Jobs that outlive the broker's patience with a consumer."""

from pathlib import Path

import pytest

from filaviva.dev import broker43
from fixtures.lone import opened
from fixtures.slack import SlackStandIn


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["system", "4.3"])
async def test_a_job_of_90_s_runs_once_with_a_consumer_timeout_of_20_s(
    tmp_path: Path, slack: SlackStandIn, version: str
) -> None:
    if version == "4.3":
        broker43.ensure()
    async with opened(
        tmp_path / "lone",
        slack,
        version=version,
        consumer_timeout_ms=20_000,  # type: ignore[arg-type]
    ) as lone:
        journey = lone.journey
        for name in ("producer", "retry-scheduler", "dlq-handler"):
            journey.start(name)
        journey.start("worker", FILAVIVA_WORKER__DETACH_AFTER_SECONDS="8")
        for name in journey.services:
            await journey.now(name).ready()
        long = await journey.submit("patient", seconds=90)
        short = await journey.submit()

        states = await journey.final(long, short, seconds=150)
        afterwards = await journey.submit()
        await journey.final(afterwards)

        assert set(states.values()) == {"succeeded"}
        assert await journey.executions(long) == 1
        assert await journey.effects(long, short) == {long: 1, short: 1}
        assert (await journey.row(long))["attempt"] == 1
