"""Limits from the command line, on a real database."""

import asyncio

import pytest

from fixtures.command_line import CommandLine, Result
from fixtures.dying import Morgue


@pytest.fixture
def cli(database: str) -> CommandLine:
    return CommandLine(FILAVIVA_POSTGRES__URL=database)


async def limits(cli: CommandLine, *words: str) -> Result:
    return await asyncio.to_thread(cli, "limits", *words)


async def test_a_limit_is_set_listed_changed_and_removed(cli: CommandLine) -> None:
    await limits(cli, "set", "--tenant", "acme", "--per-minute", "600", "--burst", "100")
    said = await limits(cli, "set", "--tenant", "acme", "--running", "50")
    each = await limits(cli, "set", "--tenant", "acme", "--subject", "*", "--running", "2")
    listed = await limits(cli, "list", "--json")
    kept = await limits(cli, "remove", "--tenant", "acme", "--dry-run")
    gone = await limits(cli, "remove", "--tenant", "acme", "--yes")
    left = await limits(cli, "list", "--tenant", "acme", "--json")

    assert said.out.strip() == "set for tenant acme"
    assert each.out.strip() == "set for each subject of tenant acme"
    whole, subjects = listed.json["items"]
    assert (whole["perMinute"], whole["burst"], whole["queued"], whole["running"]) == (
        600, 100, None, 50
    )  # fmt: skip
    assert (subjects["subject"], subjects["running"]) == ("*", 2)
    assert "would remove" in kept.out
    assert gone.code == 0
    assert [row["subject"] for row in left.json["items"]] == ["*"]


async def test_what_the_command_line_submits_counts_too(cli: CommandLine, morgue: Morgue) -> None:
    await morgue.contract({"type": "object"})
    await limits(cli, "set", "--tenant", "acme", "--per-minute", "1", "--burst", "1")
    submit = ("jobs", "submit", "invoice.extract", "--tenant", "acme", "--data", "{}")

    first = await asyncio.to_thread(cli, *submit)
    second = await asyncio.to_thread(cli, *submit)

    assert first.code == 0, first.err
    assert second.code == 4
    assert "rate_limited: tenant acme may submit 1 jobs a minute" in second.err
    assert "again in" in second.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("set", "--tenant", "acme", "--burst", "3"), 2),
        (("remove", "--tenant", "nobody", "--yes"), 3),
    ],
)
async def test_a_wrong_wish_is_refused_in_one_line(
    cli: CommandLine, words: tuple[str, ...], code: int
) -> None:
    refused = await limits(cli, *words)

    assert refused.code == code, refused.err
    assert len(refused.err.strip().splitlines()) == 1
