"""`filaviva dev` as a process, on real servers, with stand-ins for the services."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import psutil
import pytest

from filaviva.dev.http import call
from fixtures.stacks import Stack, until

Start = Callable[[str], Stack]
pytestmark = pytest.mark.timeout(180)

KEYS = {
    "api",
    "metrics",
    "broker",
    "brokerManagement",
    "postgres",
    "apiKey",
    "drillProvider",
    "pids",
}


def test_a_stack_says_what_runs_where(stack: Stack) -> None:
    facts = stack.ready()
    assert set(facts) == KEYS
    assert {name: len(numbers) for name, numbers in facts["pids"].items()} == {
        "producer": 1,
        "worker": 2,
        "broker": 1,
        "postgres": 1,
    }
    assert len(set(facts["metrics"]["worker"])) == 2
    assert all(map(psutil.pid_exists, _pids(facts)))


def test_a_second_start_on_the_same_state_is_refused(stack: Stack) -> None:
    facts = stack.ready()
    second = stack.begin()
    said, _ = second.communicate(timeout=30)
    assert second.returncode == 4
    assert f"already (pid {stack.process.pid})" in said
    assert stack.facts == facts


@pytest.mark.parametrize("what", ["worker", "postgres", "broker"])
def test_what_dies_is_started_again_where_it_was(stack: Stack, what: str) -> None:
    before = stack.ready()
    os.kill(before["pids"][what][0], signal.SIGKILL)
    until(lambda: stack.facts["pids"][what] != before["pids"][what], what="a new pid")
    after = stack.facts
    assert {k: v for k, v in after.items() if k != "pids"} == {
        k: v for k, v in before.items() if k != "pids"
    }
    until(lambda: _answers(after[what] if what in after else after["metrics"][what][0]), what=what)


async def test_what_was_declared_comes_back_when_it_is_gone(stack: Stack) -> None:
    facts = stack.ready()
    management = facts["brokerManagement"]
    until(lambda: _answers(management), what="the management API")
    call(management, "DELETE", "/api/queues/%2F/stand-in")

    def back() -> bool:
        return any(q["name"] == "stand-in" for q in call(management, "GET", "/api/queues"))

    until(back, what="the queue")
    connection = await aio_pika.connect(facts["broker"])
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue("stand-in", durable=True, passive=True)


def test_two_states_do_not_disturb_each_other_and_ctrl_c_ends_everything_of_one(
    stack: Stack, stacks: Start
) -> None:
    first, second = stack.ready(), stacks("two")
    others = second.ready()
    assert first["broker"] != others["broker"]
    assert not set(_pids(first)) & set(_pids(others))
    everything = _below(second.process.pid)

    assert second.end() == 0
    assert not second.facts
    assert _running(everything) == []
    assert all(map(psutil.pid_exists, _pids(first)))
    assert stack.facts == first


def test_leftovers_of_a_killed_run_are_ended_by_the_next_start_and_by_stop(stacks: Start) -> None:
    stack = stacks("one")
    left = [psutil.Process(pid) for pid in _pids(stack.ready())]
    stack.process.kill()
    stack.process.wait()
    assert _running(left) == left
    (stack.state / "dev.json").unlink()

    stack.again()
    again = [psutil.Process(pid) for pid in _pids(stack.ready())]
    assert _running(left) == []

    stack.process.kill()
    stack.process.wait()
    stop = ["-m", "filaviva.dev", "stop", "--state", str(stack.state)]
    assert subprocess.run([sys.executable, *stop], check=False).returncode == 0
    assert _running(again) == []
    assert not stack.facts


def test_ctrl_c_while_a_detached_stack_comes_up_ends_what_it_has_started(tmp_path: Path) -> None:
    command = ["-m", "filaviva.dev", "--detach", "--state", str(tmp_path)]
    starting = subprocess.Popen([sys.executable, *command], start_new_session=True)
    try:
        until(lambda: list((tmp_path / "pids").glob("*.json")), what="a first process")
        everything = _below(starting.pid)
        assert len(everything) > 1
        assert starting.poll() is None  # it is not ready yet
        starting.send_signal(signal.SIGINT)
        assert starting.wait(60) != 0
        assert _running(everything) == []
        assert not (tmp_path / "supervisor.json").exists()
    finally:
        starting.kill()
        stop = ["-m", "filaviva.dev", "stop", "--state", str(tmp_path)]
        subprocess.run([sys.executable, *stop], check=True, timeout=100)


def _pids(facts: dict[str, dict[str, list[int]]]) -> list[int]:
    return [pid for numbers in facts["pids"].values() for pid in numbers]


def _below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def _running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still do something; a zombie only waits for its new parent."""
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port), timeout=1):
            return True
    except OSError:
        return False
