"""Settings: a wrong one ends the start with its name, and no secret is ever shown."""

import os
from pathlib import Path

import pytest

from filaviva.errors import ConfigurationError
from filaviva.settings import Settings, read

BROKER = "amqp://me:hush-broker@broker:5672/"
POSTGRES = "postgresql://me:hush-postgres@database/filaviva"
RIGHT = {"FILAVIVA_BROKER__URL": BROKER, "FILAVIVA_POSTGRES__URL": POSTGRES}


def settings(monkeypatch: pytest.MonkeyPatch, **different: str | None) -> Settings:
    for name, value in (RIGHT | different).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    return read(Settings)


def refusal(monkeypatch: pytest.MonkeyPatch, **different: str | None) -> str:
    with pytest.raises(ConfigurationError) as refused:
        settings(monkeypatch, **different)
    return str(refused.value)


def test_two_urls_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(monkeypatch)

    assert found.broker.url.get_secret_value() == BROKER
    assert found.postgres.url.get_secret_value() == POSTGRES
    assert (found.worker.lease_seconds, found.worker.detach_after_seconds) == (15, 600)


def test_queues_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(monkeypatch, FILAVIVA_WORKER__QUEUES=" llm, billing ,")

    assert found.worker.queues == ("llm", "billing")


def test_the_tenants_of_publishers_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    given = '{"billing": ["acme", "globex"], "gateway": ["*"]}'
    found = settings(monkeypatch, FILAVIVA_EVENTS__TENANTS=given)

    assert found.events.tenants == {"billing": ("acme", "globex"), "gateway": ("*",)}


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("FILAVIVA_WORKER__CONCURRENCY", "many", ("'many'", "integer")),
        ("FILAVIVA_WORKER__CONCURRENCY", "0", ("'0'", "greater than or equal to 1")),
        ("FILAVIVA_WORKER__LEASE_SECONDS", "-1", ("'-1'", "greater")),
        ("FILAVIVA_METRICS__PORT", "70000", ("'70000'", "65535")),
        ("FILAVIVA_WORKER__QUEUES", "LLM", ("'LLM'", "pattern")),
        ("FILAVIVA_EVENTS__TENANTS", "billing=acme", ("'billing=acme'", '{"billing": ["acme"]}')),
        ("FILAVIVA_WORKER__CONCURENCY", "5", ("nobody reads", "CONCURRENCY")),
        ("FILAVIVA_WORKER_CONCURRENCY", "5", ("nobody reads", "FILAVIVA_WORKER__CONCURRENCY")),
        ("FILAVIVA_BROKR__URL", "amqp://x/", ("nobody reads", "FILAVIVA_BROKER__…")),
        ("FILAVIVA_BROKER__URL", None, ("nothing", "amqp://")),
        ("FILAVIVA_POSTGRES__URL", None, ("nothing", "postgresql://")),
        ("FILAVIVA_BROKER__URL", "http://x", ("amqp://",)),
        ("FILAVIVA_POSTGRES__URL", "mysql://x", ("postgresql://",)),
        ("FILAVIVA_POSTGRES__URL", "", ("nothing", "postgresql://")),
    ],
)
def test_a_wrong_setting_says_its_name_what_was_found_and_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None, parts: tuple[str, ...]
) -> None:
    said = refusal(monkeypatch, **{name: value})

    assert f"{name}: found " in said
    assert ", expected" in said
    for part in parts:
        assert part in said


def test_what_kubernetes_adds_for_a_service_of_our_name_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = "tcp://10.0.0.7:9101"

    found = settings(
        monkeypatch, FILAVIVA_METRICS_PORT=port, FILAVIVA_PRODUCER_SERVICE_HOST="10.0.0.7"
    )

    assert found.metrics.port == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FILAVIVA_POSTGRES__DSN", "postgresql://me:hush@x/"),
        ("FILAVIVA_BROKER__PASS", "hush"),
        ("FILAVIVA_BROKER__URL", "ftp://me:hush@x/"),
        ("FILAVIVA_SLACK__WEBHOOK", "https://hooks.slack.com/services/hush"),
        ("FILAVIVA_BROKER__URL__FOO", "hush"),
    ],
)
def test_what_may_be_a_secret_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    assert "hush" not in refusal(monkeypatch, **{name: value})


def test_every_wrong_setting_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(monkeypatch, FILAVIVA_BROKER__URL=None, FILAVIVA_POSTGRES__POOL_SIZE="0")

    assert [line.partition(":")[0] for line in said.splitlines()] == [
        "FILAVIVA_BROKER__URL",
        "FILAVIVA_POSTGRES__POOL_SIZE",
    ]


def test_a_secret_may_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("amqp://from-file/\n")

    found = settings(
        monkeypatch, FILAVIVA_BROKER__URL=None, FILAVIVA_BROKER__URL_FILE=str(tmp_path / "url")
    )

    assert found.broker.url.get_secret_value() == "amqp://from-file/"


def test_the_variable_itself_comes_before_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "url").write_text("amqp://from-file/")

    found = settings(monkeypatch, FILAVIVA_BROKER__URL_FILE=str(tmp_path / "url"))

    assert found.broker.url.get_secret_value() == BROKER


def test_a_secret_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(monkeypatch, FILAVIVA_BROKER__URL_FILE="/nowhere/url")

    assert said.startswith("FILAVIVA_BROKER__URL_FILE: found '/nowhere/url', expected a readable")


def test_a_secret_file_that_is_no_text_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "url").write_bytes(b"\xff\xfe\x00")

    said = refusal(monkeypatch, FILAVIVA_BROKER__URL_FILE=str(tmp_path / "url"))

    assert said.startswith("FILAVIVA_BROKER__URL_FILE: found ")


def test_reading_leaves_the_environment_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("hush")
    monkeypatch.delenv("FILAVIVA_SLACK__BOT_TOKEN", raising=False)

    found = settings(monkeypatch, FILAVIVA_SLACK__BOT_TOKEN_FILE=str(tmp_path / "token"))

    assert found.slack.bot_token is not None
    assert "FILAVIVA_SLACK__BOT_TOKEN" not in os.environ  # a child process would inherit it


def test_a_secret_does_not_show_in_a_printed_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "hush" not in repr(settings(monkeypatch))


def test_messages_are_known_for_longer_than_dead_letters_may_be_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for different in (
        {"FILAVIVA_RETENTION__INBOX_DAYS": "96"},
        {"FILAVIVA_RETENTION__DEAD_LETTERS_DAYS": "400"},
    ):
        said = refusal(monkeypatch, **different)
        assert "FILAVIVA_RETENTION__INBOX_DAYS: found " in said
        assert "expected at least" in said
        assert "replayed" in said
    both = {"FILAVIVA_RETENTION__INBOX_DAYS": "10", "FILAVIVA_RETENTION__DEAD_LETTERS_DAYS": "3"}
    assert settings(monkeypatch, **both).retention.inbox_days == 10
