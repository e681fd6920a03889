"""Dead letters from the command line, on a real database."""

import asyncio
import os
import pwd
from pathlib import Path

import pytest

from fixtures.command_line import CommandLine, Result
from fixtures.dying import Morgue

SCHEMA = {
    "type": "object",
    "properties": {"url": {"type": "string"}, "page": {"type": "number"}},
    "required": ["url"],
}
PAYLOAD = """'{"url"\\: "a", "page"\\: 7}'"""
FIX = '[{"op": "replace", "path": "/url", "value": "b"}]'
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def cli(database: str) -> CommandLine:
    return CommandLine(FILAVIVA_POSTGRES__URL=database)


@pytest.fixture
async def shop(morgue: Morgue) -> Morgue:
    await morgue.contract(SCHEMA)
    return morgue


async def _run(cli: CommandLine, *words: object, stdin: str = "") -> Result:
    return await asyncio.to_thread(cli, *map(str, words), stdin=stdin)


async def test_letters_of_one_cause_are_one_group(cli: CommandLine, shop: Morgue) -> None:
    for _ in range(3):
        await shop.letter_of("it broke")

    groups = (await _run(cli, "dlq", "groups", "--json")).json["items"]
    letters = (await _run(cli, "dlq", "list", "--group", groups[0]["id"], "--json")).json

    assert [(group["count"], group["open"]) for group in groups] == [(3, 3)]
    assert len(letters["items"]) == 3


async def test_a_letter_is_shown_redacted_unless_revealed(cli: CommandLine, shop: Morgue) -> None:
    letter = await shop.letter_of(payload=PAYLOAD)

    hidden = (await _run(cli, "dlq", "show", letter["id"], "--json")).json
    shown = (await _run(cli, "dlq", "show", letter["id"], "--reveal", "--json")).json

    assert "a" not in hidden["payload"].values()
    assert shown["payload"] == {"url": "a", "page": 7}
    (looked,) = await shop.all("SELECT * FROM filaviva.audit_log")
    assert (looked["action"], looked["author"]) == ("dead_letter.revealed", ME)


async def test_a_replay_is_begun_with_author_and_reason(cli: CommandLine, shop: Morgue) -> None:
    letter = await shop.letter_of()

    begun = await _run(
        cli, "dlq", "replay", letter["id"], "--reason", "it is back", "--yes", "--json"
    )

    assert begun.code == 0, begun.err
    (replay,) = await shop.all("SELECT * FROM filaviva.replays")
    assert begun.json["id"] == str(replay["id"])
    assert (replay["author"], replay["reason"]) == (ME, "it is back")
    assert (await shop.letter(letter["id"]))["status"] == "replaying"


async def test_a_second_replay_of_the_same_letter_is_refused(
    cli: CommandLine, shop: Morgue
) -> None:
    letter = await shop.letter_of()
    words = ("dlq", "replay", letter["id"], "--reason", "again", "--yes")

    await _run(cli, *words)
    second = await _run(cli, *words)

    assert second.code == 4
    assert "replaying already" in second.err


@pytest.mark.parametrize("how", ["--dry-run", "ask"])
async def test_nothing_is_sent_in_a_dry_run_or_without_a_yes(
    cli: CommandLine, shop: Morgue, how: str
) -> None:
    letter = await shop.letter_of()
    words = ["--dry-run"] if how == "--dry-run" else []

    answer = await _run(cli, "dlq", "replay", letter["id"], "--reason", "try", *words, stdin="n\n")

    assert answer.code == (0 if words else 1)
    assert (await shop.letter(letter["id"]))["status"] == "open"
    assert await shop.all("SELECT 1 FROM filaviva.replays") == []


async def test_a_group_is_replayed_by_its_id(cli: CommandLine, shop: Morgue) -> None:
    letters = [await shop.letter_of("it broke") for _ in range(2)]

    begun = await _run(
        cli, "dlq", "replay", "--group", letters[0]["group_id"], "--reason", "fixed", "--yes",
        "--json", "--canary", 1, "--rate", 5,
    )  # fmt: skip

    assert begun.json["progress"]["total"] == 2
    assert (begun.json["canary"], begun.json["ratePerSecond"]) == (1, 5)


async def test_a_correction_shows_its_difference_and_is_sent_after_a_yes(
    cli: CommandLine, shop: Morgue
) -> None:
    letter = await shop.letter_of(payload=PAYLOAD)

    sent = await _run(
        cli, "dlq", "edit", letter["id"], "--patch", FIX, "--reason", "typo", stdin="y\n"
    )

    assert sent.code == 0, sent.err
    assert '-  "url": "a"' in sent.out
    assert '+  "url": "b"' in sent.out
    (replay,) = await shop.all("SELECT * FROM filaviva.replays")
    assert replay["patch"] == [{"op": "replace", "path": "/url", "value": "b"}]


async def test_a_correction_from_a_file_can_be_tried_first(
    cli: CommandLine, shop: Morgue, tmp_path: Path
) -> None:
    letter = await shop.letter_of(payload=PAYLOAD)
    file = tmp_path / "fix.json"
    file.write_text(FIX)

    tried = await _run(
        cli, "dlq", "edit", letter["id"], "--patch-file", file, "--reason", "typo", "--dry-run",
        "--json",
    )  # fmt: skip

    assert '+  "url": "b"' in "\n".join(tried.json["difference"])
    assert (await shop.letter(letter["id"]))["status"] == "open"


async def test_a_correction_that_does_not_fit_the_contract_is_refused(
    cli: CommandLine, shop: Morgue
) -> None:
    letter = await shop.letter_of(payload=PAYLOAD)
    bad = FIX.replace('"b"', "7")

    refused = await _run(
        cli, "dlq", "edit", letter["id"], "--patch", bad, "--reason", "typo", "--yes"
    )

    assert refused.code == 2
    assert "does not fit invoice.extract v1" in refused.err
    assert (await shop.letter(letter["id"]))["status"] == "open"


async def test_discarding_closes_letters_all_or_none(cli: CommandLine, shop: Morgue) -> None:
    first, second = [await shop.letter_of(f"broke {word}") for word in ("here", "there")]
    tried = await _run(cli, "dlq", "discard", first["id"], "--reason", "old", "--dry-run")
    after_trial = (await shop.letter(first["id"]))["status"]
    done = await _run(cli, "dlq", "discard", first["id"], "--reason", "old", "--yes")
    mixed = await _run(cli, "dlq", "discard", first["id"], second["id"], "--reason", "old", "--yes")

    assert (tried.out, after_trial) == ("would discard 1\n", "open")
    assert (done.code, mixed.code) == (0, 4)
    assert (await shop.letter(first["id"]))["status"] == "discarded"
    assert (await shop.letter(second["id"]))["status"] == "open"
    (remembered,) = await shop.all("SELECT * FROM filaviva.audit_log")
    assert (remembered["author"], remembered["data"]) == (ME, {"reason": "old"})


async def test_groups_are_snoozed_and_resolved(cli: CommandLine, shop: Morgue) -> None:
    group = (await shop.letter_of())["group_id"]

    snoozed = await _run(cli, "dlq", "snooze", group, "--for", "2h", "--json")
    resolved = await _run(cli, "dlq", "resolve", group, "--reason", "known", "--json")
    again = await _run(cli, "dlq", "snooze", group, "--for", "2h")

    assert (snoozed.json["state"], resolved.json["state"]) == ("snoozed", "resolved")
    assert again.code == 4


async def test_a_replay_is_followed_and_stopped(cli: CommandLine, shop: Morgue) -> None:
    letter = await shop.letter_of()
    begun = await _run(cli, "dlq", "replay", letter["id"], "--reason", "try", "--yes", "--json")
    replay = begun.json["id"]

    tried = await _run(cli, "replays", "stop", replay, "--dry-run")
    stopped = await _run(cli, "replays", "stop", replay, "--yes", "--json")
    again = await _run(cli, "replays", "stop", replay, "--yes")
    listed = await _run(cli, "replays", "list", "--json")
    shown = await _run(cli, "replays", "show", replay, "--json")

    assert "1 letter(s) wait" in tried.out
    assert (stopped.json["status"], again.code) == ("stopped", 4)
    assert [item["id"] for item in listed.json["items"]] == [replay]
    assert shown.json["letters"][0]["status"] == "stopped"
    assert (await shop.letter(letter["id"]))["status"] == "open"


async def test_a_letter_that_is_not_there_has_its_own_exit_code(cli: CommandLine) -> None:
    some = "0190a3f2-0000-7000-8000-000000000000"

    assert (await _run(cli, "dlq", "show", some)).code == 3
    assert (await _run(cli, "dlq", "discard", some, "--reason", "x", "--yes")).code == 3
    assert (await _run(cli, "replays", "show", some)).code == 3
