"""The embedded stack's pieces that need no server."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from filaviva.atomic import write_json
from filaviva.dev import keyring, node
from filaviva.dev.child import Child, recover
from filaviva.dev.facts import Facts
from filaviva.dev.identity import Identity
from filaviva.dev.lock import exclusive_lock
from filaviva.dev.member import Member
from filaviva.dev.readiness import NotReady, wait_until

_BASE = "FILAVIVA_LINKS__BASE_URL"
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_lock_is_refused_to_the_second_and_free_after_the_first(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "lock") as first, exclusive_lock(tmp_path / "lock") as second:
        assert (first, second) == (True, False)
    with exclusive_lock(tmp_path / "lock") as third:
        assert third


def test_a_recorded_process_is_ended_and_its_record_forgotten(tmp_path: Path) -> None:
    child = Child("left", SLEEP, state=tmp_path)
    child.start()
    assert recover(tmp_path) == ["left"]
    assert child.wait(timedelta(seconds=10)) == -9
    assert recover(tmp_path) == []


def test_a_later_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP) as other:
        Identity(other.pid, "another moment").write(tmp_path / "pids" / "left.json")
        assert recover(tmp_path) == []
        assert other.poll() is None
        other.kill()


def test_a_child_that_will_not_listen_is_killed(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    child = Child("deaf", [sys.executable, "-c", f"{deaf}; time.sleep(60)"], state=tmp_path)
    child.start()
    wait_until(lambda: child.tail() == "1", patience=timedelta(seconds=10), what="the child")
    child.stop(timedelta(seconds=0.2))
    assert not child.alive


def test_what_a_child_says_is_not_mixed_with_what_the_one_before_said(tmp_path: Path) -> None:
    for words in ("no module first", "no module second"):
        child = Child("setup", [sys.executable, "-c", f"print({words!r})"], state=tmp_path)
        child.start()
        child.wait(timedelta(seconds=10))
        assert child.tail() == words


def test_waiting_ends_when_the_fact_has_become_impossible() -> None:
    with pytest.raises(NotReady, match="it: ended before"):
        wait_until(
            lambda: False,
            patience=timedelta(minutes=1),
            what="it",
            still_possible=lambda: False,
        )


def test_waiting_ends_with_our_patience() -> None:
    with pytest.raises(NotReady, match="it: not ready after"):
        wait_until(lambda: False, patience=timedelta(seconds=0.1), what="it")


def test_definitions_keep_what_was_exported_and_our_own_way_in(tmp_path: Path) -> None:
    exported = tmp_path / "definitions.json"
    write_json(
        exported,
        {
            "users": [{"name": "other"}, {"name": node.USER, "password_hash": "old"}],
            "vhosts": [{"name": "elsewhere"}],
            "queues": [{"name": "kept"}],
        },
    )
    merged = json.loads(node.definitions("new", exported))
    assert [user["name"] for user in merged["users"]] == ["other", node.USER]
    assert merged["users"][1]["password_hash"] != "old"
    assert [vhost["name"] for vhost in merged["vhosts"]] == ["elsewhere", "/"]
    assert merged["queues"] == [{"name": "kept"}]


def test_a_node_without_exported_definitions_still_has_its_user(tmp_path: Path) -> None:
    merged = json.loads(node.definitions("secret", tmp_path / "absent.json"))
    assert [user["name"] for user in merged["users"]] == [node.USER]


def test_a_short_consumer_timeout_is_looked_at_often_enough() -> None:
    assert "{consumer_timeout, 20000}, {channel_tick_interval, 5000}" in node.advanced(20_000)
    assert node.advanced(None) == "[].\n"


def test_a_key_is_kept_for_its_database_and_made_anew_for_another(tmp_path: Path) -> None:
    made = iter(["first", "second"])

    def key(url: str) -> str:
        return keyring.key(tmp_path, url, lambda _: next(made))

    assert key("postgresql://a:secret@127.0.0.1:1/filaviva") == "first"
    assert key("postgresql://a:secret@127.0.0.1:2/filaviva") == "first"
    assert key("postgresql://a:other@127.0.0.1:1/filaviva") == "second"


@pytest.mark.parametrize(
    ("service", "told", "found"),
    [
        ("producer", {}, None),
        ("producer", {_BASE: "https://x.test"}, "https://x.test"),
        ("worker", {}, ""),
    ],
)
def test_links_lead_to_the_producer_of_this_stack_unless_told_otherwise(
    tmp_path: Path, service: str, told: dict[str, str], found: str | None
) -> None:
    says = [sys.executable, "-c", f"import os; print(os.environ.get('{_BASE}', ''))"]
    member = Member.of(service, 1, says, state=tmp_path, env=told)

    member.launch()
    member.child.wait()

    assert member.child.log.read_text().strip() == (member.http if found is None else found)


def test_the_secret_of_links_is_made_once_and_gives_way_to_a_named_one(tmp_path: Path) -> None:
    (name, path), *_ = keyring.links(tmp_path, {}).items()
    made = Path(path).read_text()

    assert name == "FILAVIVA_LINKS__SECRET_FILE"
    assert len(made.strip()) >= 32
    assert Path(path).stat().st_mode & 0o077 == 0
    assert keyring.links(tmp_path, {}) == {name: path}
    assert Path(path).read_text() == made
    assert keyring.links(tmp_path, {"FILAVIVA_LINKS__SECRET": "another"}) == {}


def test_what_does_not_run_is_absent_from_dev_json(tmp_path: Path) -> None:
    Facts(
        broker="amqp://", broker_management=None, postgres="postgresql://", api_key="k", pids={}
    ).write(tmp_path / "dev.json")
    assert set(json.loads((tmp_path / "dev.json").read_text())) == {"broker", "postgres", "apiKey"}


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    ask = "from filaviva.dev.packages import require; require('absent', present='absent')"
    as_somebody = [] if os.geteuid() else ["unshare", "--user"]
    done = subprocess.run(
        [*as_somebody, sys.executable, "-c", ask], capture_output=True, text=True, check=False
    )
    if "unshare failed" in done.stderr:
        pytest.skip("no user namespaces here")
    assert "run `sudo apt-get install absent`" in done.stderr
