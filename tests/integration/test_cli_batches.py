"""Batches from the command line: submitted from a file, what failed repeated."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.command_line import CommandLine, Result
from fixtures.dying import Morgue

SCHEMA = {
    "type": "object",
    "properties": {"url": {"type": "string"}},
    "required": ["url"],
    "additionalProperties": False,
}


@pytest.fixture
def cli(database: str) -> CommandLine:
    return CommandLine(FILAVIVA_POSTGRES__URL=database)


@pytest.fixture
async def shop(morgue: Morgue) -> Morgue:
    await morgue.contract(SCHEMA)
    return morgue


async def run(cli: CommandLine, *words: str, stdin: str = "") -> Result:
    return await asyncio.to_thread(cli, "jobs", *words, stdin=stdin)


async def failed(shop: Morgue, cli: CommandLine, folder: Path) -> str:
    """A batch of three whose last two items failed."""
    file = folder / "items.json"
    file.write_text(json.dumps([{"url": letter} for letter in "abc"]))
    words = ("submit", "invoice.extract", "--items", str(file), "--no-accept-partial", "--json")
    answer = await run(cli, *words)
    assert answer.code == 0, answer.err
    await shop.all("UPDATE filaviva.jobs SET state = 'running' WHERE item_index IS NOT NULL")
    await shop.all("UPDATE filaviva.jobs SET state = 'succeeded' WHERE item_index = 0")
    await shop.all("UPDATE filaviva.jobs SET state = 'failed' WHERE item_index > 0")
    return str(answer.json["jobId"])


async def states(shop: Morgue) -> list[tuple[str, Any]]:
    rows = await shop.all(
        "SELECT state, payload FROM filaviva.jobs WHERE item_index IS NOT NULL ORDER BY item_index"
    )
    return [(row["state"], row["payload"]["url"]) for row in rows]


async def test_a_batch_comes_from_a_file_and_its_failed_items_go_again(
    cli: CommandLine, shop: Morgue, tmp_path: Path
) -> None:
    batch = await failed(shop, cli, tmp_path)

    shown = await run(cli, "get", batch, "--items", "--json")
    assert [item["status"] for item in shown.json["items"]] == ["succeeded", "failed", "failed"]
    trial = await run(cli, "retry", batch, "--dry-run", "--json")
    assert (trial.json["retried"], trial.json["dryRun"]) == (2, True)
    assert [state for state, _ in await states(shop)] == ["succeeded", "failed", "failed"]

    done = await run(cli, "retry", batch, "--yes", "--json", "--reason", "the network was down")

    assert (done.code, done.json["retried"], done.json["status"]) == (0, 2, "running")
    assert [state for state, _ in await states(shop)] == ["succeeded", "queued", "queued"]
    again = await run(cli, "retry", batch, "--yes")
    assert (again.code, "only what failed" in again.err) == (4, True)
    (entry,) = await shop.all("SELECT data FROM filaviva.audit_log WHERE action = 'job.retried'")
    assert entry["data"]["reason"] == "the network was down"


async def test_an_item_goes_again_with_corrected_data(
    cli: CommandLine, shop: Morgue, tmp_path: Path
) -> None:
    batch = await failed(shop, cli, tmp_path)

    wrong = await run(cli, "retry", batch, "--item", "1", "--data", '{"uri": "B"}', "--yes")
    one = await run(cli, "retry", batch, "--item", "1", "--data", '{"url": "B"}', "--yes")
    parts = '[{"index": 2, "data": {"url": "C"}}]'
    two = await run(cli, "retry", batch, "--items", "-", "--yes", stdin=parts)

    assert (wrong.code, "does not fit" in wrong.err) == (2, True)
    assert (one.code, two.code) == (0, 0), one.err + two.err
    assert await states(shop) == [("succeeded", "a"), ("queued", "B"), ("queued", "C")]


@pytest.mark.parametrize(
    "words",
    [
        ("--items", "-", "--item", "1"),
        ("--items", "-"),
        ("--item", "1", "--item", "2", "--data", "{}"),
    ],
)
async def test_what_cannot_be_meant_is_a_usage_error(
    cli: CommandLine, words: tuple[str, ...]
) -> None:
    job = "019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55"
    answer = await run(cli, "retry", job, *words, "--yes", stdin='{"index": 1}')

    assert answer.code == 2
