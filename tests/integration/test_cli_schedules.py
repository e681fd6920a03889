"""Schedules from the command line, on a real database."""

import asyncio
from typing import Any

import pytest

from fixtures.command_line import CommandLine, Result
from fixtures.dying import Morgue

SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
ADD = ("add", "nightly", "invoice.extract", "--cron", "30 2 * * *", "--data", '{"n": 7.10}')


class Schedules:
    """`filaviva schedules …` beside the test's loop."""

    def __init__(self, database: str) -> None:
        self._cli = CommandLine(FILAVIVA_POSTGRES__URL=database)

    async def __call__(self, *words: str) -> Result:
        """Run one command."""
        return await asyncio.to_thread(self._cli, "schedules", *words)

    async def json(self, *words: str) -> Any:
        """Run one that ends well and read what it printed."""
        answer = await self(*words, "--json")
        assert answer.code == 0, answer.err
        return answer.json


@pytest.fixture
async def cli(database: str, morgue: Morgue) -> Schedules:
    await morgue.contract(SCHEMA)
    return Schedules(database)


async def test_a_schedule_goes_its_way_from_the_command_line(
    cli: Schedules, morgue: Morgue
) -> None:
    made = await cli.json(*ADD, "--time-zone", "America/Sao_Paulo", "--missed", "all")
    paused = await cli.json("pause", "nightly")
    resumed = await cli.json("resume", made["scheduleId"])
    kept = await cli.json("run-now", "nightly")
    listed = await cli.json("list")
    removed = await cli("remove", "nightly", "--yes")

    assert [time[11:] for time in made["nextTimes"]] == ["02:30:00-03:00"] * 5
    assert (paused["nextFireAt"], resumed["nextFireAt"]) == (None, made["nextFireAt"])
    job = await morgue.one("SELECT labels, payload::text AS data FROM filaviva.jobs")
    assert (job["labels"], job["data"]) == ({"schedule": "nightly"}, '{"n": 7.10}')
    assert kept["status"] == "queued"
    assert [one["name"] for one in listed["items"]] == ["nightly"]
    assert (
        removed.out == "removed schedule nightly (30 2 * * * America/Sao_Paulo, invoice.extract)\n"
    )
    assert (await cli("show", "nightly")).code == 3


async def test_a_dry_run_shows_the_next_times_and_keeps_nothing(
    cli: Schedules, morgue: Morgue
) -> None:
    answer = await cli(*ADD, "--dry-run")

    assert answer.out.splitlines()[-5:] == [
        line for line in answer.out.splitlines() if "T02:30" in line
    ]
    assert await morgue.all("SELECT 1 FROM filaviva.schedules") == []


async def test_what_is_wrong_is_a_usage_error_that_says_what_is_expected(cli: Schedules) -> None:
    wrong = await cli(*ADD[:4], "99 2 * * *", *ADD[5:])

    assert wrong.code == 2
    assert "found minute '99'" in wrong.err
    assert "expected five fields" in wrong.err
