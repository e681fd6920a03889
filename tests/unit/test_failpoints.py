"""Failpoints: absent unless the environment names them, and then exactly there."""

import os
import signal
import subprocess
import sys
import time

import pytest

from filaviva.failpoints import armed

_PASS = """
import sys
from filaviva.failpoints import passing
for n in range(4):
    print("passing", n, flush=True)
    passing("claimed")
    passing("other")
print("through", flush=True)
"""


def passed(points: str | None) -> "subprocess.CompletedProcess[str]":
    environment = {k: v for k, v in os.environ.items() if k != "FILAVIVA_FAILPOINTS"}
    if points is not None:
        environment["FILAVIVA_FAILPOINTS"] = points
    return subprocess.run(
        [sys.executable, "-c", _PASS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("points", [None, "", "elsewhere=exit"])
def test_nothing_happens_where_nobody_armed_anything(points: str | None) -> None:
    ran = passed(points)

    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "through")


def test_exit_ends_the_process_as_a_kill_would() -> None:
    ran = passed("claimed=exit")

    assert ran.returncode == -signal.SIGKILL
    assert ran.stdout.splitlines() == ["passing 0"]


def test_the_nth_passage_may_be_meant() -> None:
    ran = passed("other=raise@3")

    assert "FailpointRaised: other" in ran.stderr
    assert ran.stdout.splitlines() == ["passing 0", "passing 1", "passing 2"]


def test_freeze_holds_the_whole_process_once() -> None:
    began = time.monotonic()

    ran = passed("claimed=freeze:0.7")

    assert ran.stdout.splitlines()[-1] == "through"
    assert time.monotonic() - began >= 0.7


def test_several_may_be_armed_at_once() -> None:
    points = armed({"FILAVIVA_FAILPOINTS": "a=exit;b=raise@2;c=freeze:2.5@4"})

    assert set(points) == {"a", "b", "c"}
    assert (points["a"].action, points["a"].nth) == ("exit", 1)
    assert (points["b"].action, points["b"].nth) == ("raise", 2)
    assert (points["c"].action, points["c"].seconds, points["c"].nth) == ("freeze", 2.5, 4)


@pytest.mark.parametrize("text", ["claimed", "claimed=explode", "claimed=exit@x", "=exit"])
def test_a_point_that_would_do_nothing_is_an_error(text: str) -> None:
    # A fault test with a typo would prove nothing, and pass.
    with pytest.raises(ValueError, match="FILAVIVA_FAILPOINTS"):
        armed({"FILAVIVA_FAILPOINTS": text})
