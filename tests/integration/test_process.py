"""Handlers in processes: none is at work any more when its attempt is over."""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from filaviva.outcome import Done
from filaviva_worker.child import Assignment
from filaviva_worker.live import Rung
from filaviva_worker.process import run_in_process
from filaviva_worker.remote import Facts
from fixtures.waiting import until


class NoRemote:
    """A handler that asks for nothing needs only an end."""

    async def rollback(self) -> None:
        """Undo nothing."""


def assignment(folder: Path, **content: Any) -> Assignment:
    return Assignment(
        app_path="fixtures.blocking_app:app",
        type="test.block",
        version=1,
        payload=json.dumps({"folder": str(folder), **content}),
        facts=Facts(uuid4(), 1, 1, "default", None, "correlation"),
        max_result_bytes=1000,
    )


def begin(
    folder: Path, ending: Callable[[Rung], None] = lambda _: None, **content: Any
) -> "asyncio.Task[Any]":
    remote: Any = NoRemote()
    return asyncio.create_task(
        run_in_process(assignment(folder, **content), remote, lambda: None, ending)
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


async def begun(folder: Path) -> int:
    await until((folder / "begun").exists)
    return int((folder / "begun").read_text())


async def test_a_process_reports_what_its_handler_returns(tmp_path: Path) -> None:
    outcome = await asyncio.wait_for(begin(tmp_path, seconds=0), 20)

    assert outcome == Done('"done"')


@pytest.mark.parametrize("turns", [1, 2, 5])
async def test_an_attempt_ended_while_its_process_starts_leaves_none_at_work(
    tmp_path: Path, turns: int
) -> None:
    attempt = begin(tmp_path, seconds=1)
    for _ in range(turns):
        await asyncio.sleep(0)

    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(attempt, 20)

    assert multiprocessing.active_children() == []
    assert not (tmp_path / "ended").exists()


async def test_an_attempt_told_twice_to_end_still_waits_for_its_process(tmp_path: Path) -> None:
    attempt = begin(tmp_path, stubborn=True)
    pid = await begun(tmp_path)

    attempt.cancel()
    await asyncio.sleep(0)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(attempt, 20)

    assert not alive(pid)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [({}, [Rung.SIGTERM]), ({"stubborn": True}, [Rung.SIGTERM, Rung.SIGKILL])],
    ids=["ends", "ignores SIGTERM"],
)
async def test_a_process_gets_sigterm_and_then_sigkill(
    tmp_path: Path, content: dict[str, Any], wanted: list[Rung]
) -> None:
    rungs: list[Rung] = []
    running = begin(tmp_path, rungs.append, **content)
    await begun(tmp_path)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 20)

    await until(lambda: rungs == wanted)


async def test_a_handler_that_gets_sigterm_may_clean_up(tmp_path: Path) -> None:
    running = begin(tmp_path)
    await begun(tmp_path)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 20)

    assert (tmp_path / "cleaned").exists()
    assert not (tmp_path / "ended").exists()


_WORKER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, "tests")
from integration.test_process import begin

async def main():
    await begin(Path(sys.argv[1]))

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_killed_worker_leaves_no_process_at_work_that_never_asks_for_it(
    tmp_path: Path,
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(_WORKER)
    here = Path(__file__).parents[2]
    paths = os.pathsep.join([str(here / "tests"), os.environ.get("PYTHONPATH", "")])
    worker = subprocess.Popen(  # noqa: ASYNC220 - it takes no time to begin
        [sys.executable, str(script), str(tmp_path)],
        cwd=here,
        env={**os.environ, "PYTHONPATH": paths},
    )
    pid = await begun(tmp_path)

    worker.kill()
    worker.wait()

    await until(lambda: not alive(pid), seconds=5)
