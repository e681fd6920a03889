"""The command line answers at once, and its exit codes mean what they say."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from filaviva.cli import here
from filaviva.cli.bar import Bar
from filaviva.cli.exits import exit_code, explanation
from filaviva.cli.output import show_facts, show_list
from filaviva.cli.root import Commands
from filaviva.cli.submitting import CallbackEnvironment
from filaviva.cli.watching import Printer
from filaviva.errors import (
    ConfigurationError,
    FilavivaError,
    Flaw,
    NotAdmitted,
    NotFound,
    Rejected,
    Unreachable,
)
from filaviva.operations.jobs import Event
from filaviva.settings import read
from fixtures.command_line import CommandLine

filaviva = CommandLine()


def test_help_takes_less_than_half_a_second_of_work() -> None:
    def work() -> float:
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "filaviva.cli", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        after = os.times()
        used = after.children_user + after.children_system
        return used - before.children_user - before.children_system

    assert min(work() for _ in range(3)) < 0.5


def test_help_imports_neither_database_nor_broker_nor_pydantic_settings() -> None:
    script = (
        "import sys; from filaviva.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('sqlalchemy', 'asyncpg', 'aiormq', 'fastapi') if m in sys.modules])"
    )

    said = subprocess.check_output([sys.executable, "-c", script], text=True)

    assert said.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", Commands.places)
def test_every_command_that_is_listed_exists_and_explains_itself(name: str) -> None:
    shown = filaviva(name, "--help")

    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: filaviva {name}")
    assert "--install-completion" not in shown.out


def test_the_release_is_told() -> None:
    assert filaviva("--version").out == "filaviva 0.1.0\n"


def test_a_mistyped_command_is_a_usage_error_that_names_the_right_one() -> None:
    answer = filaviva("dlg")

    assert answer.code == 2
    assert "Did you mean 'dlq'?" in answer.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (NotFound("x"), 3),
        (Unreachable("x"), 5),
        (NotAdmitted("x"), 2),
        (FilavivaError("x"), 1),
        (Rejected("conflict", "x", status=409), 4),
        (Rejected("forbidden", "x", status=403), 4),
        (Rejected("idempotency_key_reused", "x", status=422), 4),
        (Rejected("invalid_data", "x", status=422), 2),
        (Rejected("not_found", "x", status=404), 3),
        (Rejected("unavailable", "x", status=503), 5),
    ],
)
def test_each_error_has_its_exit_code(error: FilavivaError, code: int) -> None:
    assert exit_code(error) == code


def test_every_flaw_of_an_input_is_told_with_its_pointer() -> None:
    flaws = [Flaw("/data/url", "is missing"), Flaw("/data/page", "is no number")]

    said = explanation(Rejected("invalid_data", "does not fit", status=422, flaws=flaws))

    assert said.splitlines() == [
        "invalid_data: does not fit",
        "  /data/url: is missing",
        "  /data/page: is no number",
    ]


def test_a_missing_setting_is_named_and_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where no stack runs
    answer = filaviva("keys", "list")

    assert answer.code == 2
    assert "FILAVIVA_POSTGRES__URL: found nothing" in answer.err
    assert "in the folder where `filaviva dev` runs" in answer.err


@pytest.fixture
def running_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder in which a stack says that it runs; the address of its database."""
    monkeypatch.chdir(tmp_path)
    postgres = "postgresql://dev@127.0.0.1:1/dev"
    facts = {
        "api": "http://127.0.0.1:2",
        "postgres": postgres,
        "broker": "amqp://dev@127.0.0.1:1/",
        "brokerManagement": None,
    }
    (tmp_path / ".filaviva").mkdir()
    (tmp_path / ".filaviva" / "dev.json").write_text(json.dumps(facts))
    return postgres


def test_without_addresses_a_command_acts_on_the_stack_that_runs_here(running_here: str) -> None:
    listed, seen = filaviva("jobs", "list"), filaviva("doctor")

    assert listed.code == 5
    assert "dev@127.0.0.1:1/dev does not answer" in listed.err
    assert seen.code == 1
    assert "127.0.0.1:1/ cannot be used" in seen.out
    assert "dev@127.0.0.1:1/dev cannot be used" in seen.out
    assert CommandLine(FILAVIVA_POSTGRES__URL=running_here)("doctor").code == 1
    assert here.environment()["FILAVIVA_LINKS__BASE_URL"] == "http://127.0.0.1:2"


def test_who_names_a_server_never_acts_on_half_of_the_stack_that_runs_here(
    running_here: str, tmp_path: Path
) -> None:
    other = "postgresql://ana@127.0.0.1:1/mine"
    (tmp_path / "url").write_text(running_here)

    named = CommandLine(FILAVIVA_POSTGRES__URL=other)("doctor")
    in_a_file = CommandLine(FILAVIVA_POSTGRES__URL_FILE=str(tmp_path / "url"))("doctor")

    for answer in (named, in_a_file):
        assert answer.code == 2
        assert "FILAVIVA_BROKER__URL: found nothing" in answer.err


def test_a_broken_dev_json_is_as_good_as_none(running_here: str, tmp_path: Path) -> None:
    assert running_here
    for content in ("", "[]", '{"postgres": null}'):
        (tmp_path / ".filaviva" / "dev.json").write_text(content)
        assert filaviva("keys", "list").code == 2


def test_an_absent_database_is_told_without_its_password() -> None:
    there = CommandLine(FILAVIVA_POSTGRES__URL="postgresql://ana:sesame@127.0.0.1:1/x")

    answer = there("jobs", "list")

    assert answer.code == 5
    assert "ana@127.0.0.1:1/x does not answer" in answer.err
    assert "sesame" not in answer.err


def test_running_a_service_that_is_not_installed_names_those_that_are() -> None:
    answer = filaviva("run", "wroker")

    assert answer.code == 2
    for name in ("wroker", "producer", "worker", "retry-scheduler", "dlq-handler"):
        assert name in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "list", "--status", "succeded"),
        ("dlq", "list", "--status", "succeded"),
        ("dlq", "groups", "--state", "succeded"),
    ],
)
def test_a_misspelt_state_is_a_usage_error_that_names_the_right_ones(
    words: tuple[str, ...],
) -> None:
    answer = filaviva(*words)

    assert answer.code == 2
    assert "found 'succeded', expected one of" in answer.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("jobs", "submit", "a.b", "--data", '{"a": "\udcff"}'), "expected text in UTF-8"),
        (("dlq", "discard", "x", "--reason", "\udcff"), "argument 5: found '\\udcff'"),
        (("jobs", "submit", "a.b", "--data", "{}", "--tenant", ""), "found '', expected 1 to 100"),
        (("schedules", "list", "--tenant", "a b"), "found 'a b'"),
        (("callbacks", "secret", "--tenant", "*"), "found '*'"),
        (("topology", "plan", "--queue", "a b"), "expected a lower-case letter"),
        (("dev", "--state", "/dev/null/x"), "expected a folder that can be written"),
    ],
)
def test_what_could_never_be_stored_is_a_usage_error(words: tuple[str, ...], expected: str) -> None:
    answer = filaviva(*words)

    assert answer.code == 2
    assert expected in " ".join(answer.err.split())
    assert "Traceback" not in answer.err


def test_what_is_no_id_is_a_usage_error() -> None:
    answer = filaviva("jobs", "get", "seven")

    assert answer.code == 2
    assert "'seven'" in answer.err


@pytest.mark.parametrize("words", [(), ("--group", "x", "--type", "y")])
def test_a_replay_of_nothing_in_particular_is_refused(words: tuple[str, ...]) -> None:
    answer = filaviva("dlq", "replay", *words, "--reason", "try again")

    assert answer.code == 2
    assert "expected dead letters once" in answer.err


def test_a_patch_that_is_no_json_is_a_usage_error() -> None:
    some = "0190a3f2-0000-7000-8000-000000000000"

    answer = filaviva("dlq", "edit", some, "--patch", "[{", "--reason", "typo")

    assert answer.code == 2
    assert "--patch" in answer.err


def test_commands_sign_with_the_secrets_of_the_stack_that_runs_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FILAVIVA_")]:
        monkeypatch.delenv(name)
    state = tmp_path / ".filaviva"
    state.mkdir()
    (state / "callbacks-secret").write_text("s" * 32 + "\n")
    assert "FILAVIVA_CALLBACKS__SECRET_FILE" not in here.environment()

    (state / "dev.json").write_text('{"postgres": "postgresql://me@here/db"}')
    settings = read(CallbackEnvironment, here.environment()).callbacks
    assert settings.secret is not None
    assert (settings.secret.get_secret_value(), settings.allow_private) == ("s" * 32, True)

    monkeypatch.setenv("FILAVIVA_CALLBACKS__SECRET", "t" * 32)
    settings = read(CallbackEnvironment, here.environment()).callbacks
    assert settings.secret is not None
    assert settings.secret.get_secret_value() == "t" * 32
    monkeypatch.setenv("FILAVIVA_POSTGRES__URL", "postgresql://me@there/db")
    assert "FILAVIVA_CALLBACKS__SECRET_FILE" not in here.environment()


def test_what_others_wrote_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\x1b]0;owned\x07b\x9bc"

    show_facts({"subject": evil, "labels": {"x": evil}})
    show_list([{"subject": evil}], ("subject",))
    Printer(json=False, bar=Bar(live=False)).happened(
        Event(1, datetime.now(UTC), "state", json.dumps({"reason": evil}))
    )

    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable(), shown
