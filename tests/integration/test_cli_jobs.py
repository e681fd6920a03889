"""Jobs from the command line, on a real database."""

import asyncio
import json
import os
import pwd
from urllib.parse import urlsplit, urlunsplit

import pytest

from fixtures.command_line import CommandLine
from fixtures.dying import Morgue
from fixtures.retrying import Jobs
from fixtures.waiting import until

SCHEMA = {
    "type": "object",
    "properties": {"url": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["url"],
    "additionalProperties": False,
}
DATA = '{"url": "a", "amount": 12345678901234567890.10}'
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def cli(database: str) -> CommandLine:
    return CommandLine(FILAVIVA_POSTGRES__URL=database)


@pytest.fixture
async def shop(morgue: Morgue) -> Morgue:
    await morgue.contract(SCHEMA)
    return morgue


async def test_a_submitted_job_is_kept_with_its_author_and_exact_numbers(
    cli: CommandLine, shop: Morgue
) -> None:
    answer = await asyncio.to_thread(
        cli, "jobs", "submit", "invoice.extract", "--data", DATA, "--label", "run=7", "--json"
    )

    assert answer.code == 0, answer.err
    (job,) = await shop.all("SELECT *, payload::text AS text FROM filaviva.jobs")
    assert answer.json["jobId"] == str(job["id"])
    assert answer.json["duplicate"] is False
    assert job["submitted_by"] == ME
    assert job["labels"] == {"run": "7"}
    assert "12345678901234567890.10" in job["text"]


async def test_its_wake_up_waits_for_no_lock(cli: CommandLine, shop: Morgue) -> None:
    await asyncio.to_thread(cli, "jobs", "submit", "invoice.extract", "--data", DATA)

    (row,) = await shop.all("SELECT locked_until <= clock_timestamp() AS free FROM filaviva.outbox")
    assert row["free"]


async def test_the_same_key_is_the_same_job_and_other_content_is_refused(
    cli: CommandLine, shop: Morgue
) -> None:
    def submit(data: str) -> tuple[int, str]:
        answer = cli(
            "jobs", "submit", "invoice.extract", "--data-file", "-", "--key", "k1", "--json",
            stdin=data,
        )  # fmt: skip
        return answer.code, answer.out

    _, first = await asyncio.to_thread(submit, DATA)
    code, second = await asyncio.to_thread(submit, DATA)
    refused, _ = await asyncio.to_thread(submit, '{"url": "b"}')

    assert (code, refused) == (0, 4)
    assert json.loads(second)["duplicate"] is True
    assert json.loads(first)["jobId"] == json.loads(second)["jobId"]
    (use,) = await shop.all("SELECT type, source, uses FROM filaviva.contract_uses")
    assert use == {"type": "invoice.extract", "source": f"cli:{ME}", "uses": 1}
    assert len(await shop.all("SELECT 1 FROM filaviva.jobs")) == 1


async def test_data_that_does_not_fit_is_refused_with_its_place(
    cli: CommandLine, shop: Morgue
) -> None:
    answer = await asyncio.to_thread(
        cli, "jobs", "submit", "invoice.extract", "--data", '{"url": 7}'
    )

    assert answer.code == 2
    assert "/data/url" in answer.err
    assert await shop.all("SELECT 1 FROM filaviva.jobs") == []


@pytest.mark.usefixtures("shop")
async def test_an_unknown_type_is_refused_naming_what_exists(cli: CommandLine) -> None:
    answer = await asyncio.to_thread(cli, "jobs", "submit", "invoice.extrat", "--data", "{}")

    assert answer.code == 2
    assert "invoice.extract" in answer.err


async def test_a_job_is_shown_with_its_attempts(cli: CommandLine, jobs: Jobs) -> None:
    job = await jobs.running()

    answer = await asyncio.to_thread(cli, "jobs", "get", str(job), "--attempts", "--json")

    assert answer.json["status"] == "running"
    assert [attempt["number"] for attempt in answer.json["attempts"]] == [1]


async def test_a_person_reads_plain_facts_and_nothing_of_what_is_not_known(
    cli: CommandLine, jobs: Jobs
) -> None:
    job = await jobs.queued(labels='\'{"run"\\: "7"}\'', result="'{\"total\"\\: 9.90}'")

    shown = (await asyncio.to_thread(cli, "jobs", "get", str(job), "--timeline")).out

    assert 'labels        {"run": "7"}' in shown
    assert 'result        {"total": 9.90}' in shown
    assert "deadline" not in shown
    assert shown.endswith("timeline\nnone\n")


async def test_pauses_are_rounded_and_more_attempts_than_allowed_are_explained(
    cli: CommandLine, jobs: Jobs
) -> None:
    job = await jobs.running(attempt=6, max_attempts=5)
    await jobs.all("UPDATE filaviva.attempts SET pause_seconds = 1.7441234567")
    usual = await jobs.running()

    shown = await asyncio.to_thread(cli, "jobs", "get", str(job), "--attempts")
    other = await asyncio.to_thread(cli, "jobs", "get", str(usual))

    assert " 1.744 " in shown.out
    assert "1.7441" not in shown.out
    assert "a replay or retry gives a fresh allowance" in shown.out
    assert "allowance" not in other.out


async def test_a_timeline_shows_all_that_happened(cli: CommandLine, jobs: Jobs) -> None:
    job = await jobs.queued()
    why = "the provider has been down since noon and nobody knows when it will be back again"
    tell = (
        "INSERT INTO filaviva.job_events (job_id, kind, data)"
        " VALUES (:id, 'state', jsonb_build_object('why', CAST(:why AS text), 'status', 'failed'))"
    )
    await jobs.all(tell, id=job, why=why)

    shown = (await asyncio.to_thread(cli, "jobs", "get", str(job), "--timeline")).out

    assert why in shown
    assert '"status": "failed"' in shown


async def test_a_job_that_is_not_there_has_its_own_exit_code(cli: CommandLine) -> None:
    some = "0190a3f2-0000-7000-8000-000000000000"

    for verb in ("get", "watch"):
        assert (await asyncio.to_thread(cli, "jobs", verb, some)).code == 3


async def test_jobs_are_listed_page_by_page_newest_first(cli: CommandLine, jobs: Jobs) -> None:
    made = [str(await jobs.queued()) for _ in range(3)]
    await jobs.queued(tenant="'other'")

    first = await asyncio.to_thread(cli, "jobs", "list", "--limit", "2", "--json")
    cursor = first.json["next"]
    second = await asyncio.to_thread(cli, "jobs", "list", "--cursor", cursor, "--json")

    listed = [item["jobId"] for item in first.json["items"] + second.json["items"]]
    assert listed == made[::-1]
    assert second.json["next"] is None


async def test_watching_shows_every_change_and_ends_with_the_job(
    cli: CommandLine, jobs: Jobs
) -> None:
    job = await jobs.queued()
    tell = (
        "INSERT INTO filaviva.job_events (job_id, kind, data)"
        " VALUES (:id, 'state', jsonb_build_object('status', CAST(:state AS text)))"
    )
    seen = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'filaviva-cli'"

    watching = asyncio.create_task(asyncio.to_thread(cli, "jobs", "watch", str(job)))
    await until(lambda: jobs.all(seen))
    for state in ("running", "succeeded"):
        await jobs.all(f"UPDATE filaviva.jobs SET state = '{state}' WHERE id = :id", id=job)
        await jobs.all(tell, id=job, state=state)
    answer = await watching

    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert [line.split()[-1] for line in lines[:2]] == ["status=running", "status=succeeded"]
    assert lines[2].startswith("succeeded after 0 attempt(s)")


async def test_watching_a_job_that_failed_has_exit_code_1(cli: CommandLine, morgue: Morgue) -> None:
    job = await morgue.failed("the total is wrong")

    answer = await asyncio.to_thread(cli, "jobs", "watch", str(job), "--json")

    assert (answer.code, answer.err) == (1, "")
    last = json.loads(answer.out.splitlines()[-1])
    assert (last["status"], last["error"]["message"]) == ("failed", "the total is wrong")


async def test_a_jobs_data_is_erased_after_a_question_and_only_when_it_is_final(
    cli: CommandLine, morgue: Morgue
) -> None:
    job = str(await morgue.failed("no Ana", subject="'Ana'"))
    running = str(await morgue.running())

    planned = await asyncio.to_thread(cli, "jobs", "erase", job, "--dry-run")
    unasked = await asyncio.to_thread(cli, "jobs", "erase", job)
    done = await asyncio.to_thread(cli, "jobs", "erase", job, "--yes", "--json")
    refused = await asyncio.to_thread(cli, "jobs", "erase", running, "--yes")

    assert planned.out.startswith("would erase")
    assert unasked.code == 1
    assert (done.code, done.json["items"]) == (0, 0)
    row = await morgue.one("SELECT * FROM filaviva.jobs WHERE state = 'failed'")
    assert (row["subject"], row["error"]["message"]) == (None, None)
    assert row["erased_at"] is not None
    assert (refused.code, "expected a final state" in refused.err) == (4, True)


async def test_a_wrong_password_is_a_configuration_error_in_the_servers_own_words(
    database: str,
) -> None:
    parts = urlsplit(database)
    there = f"{parts.username}:sesame@{parts.hostname}:{parts.port}"
    cli = CommandLine(FILAVIVA_POSTGRES__URL=urlunsplit(parts._replace(netloc=there)))

    answer = await asyncio.to_thread(cli, "jobs", "list")

    assert answer.code == 2
    assert "refuses: password authentication failed" in answer.err
    assert "sqlalche" not in answer.err
    assert "sesame" not in answer.err


async def test_a_database_that_was_never_set_up_is_a_configuration_error(
    empty_database: str,
) -> None:
    answer = await asyncio.to_thread(
        CommandLine(FILAVIVA_POSTGRES__URL=empty_database), "jobs", "list"
    )

    assert answer.code == 2
    assert "run `filaviva setup`" in answer.err
