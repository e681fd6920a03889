"""Services: stop when asked, end at once when asked twice, refuse wrong settings."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.error import HTTPError

import pytest

from filaviva.errors import ConfigurationError
from filaviva.service import LoopLag, serve, wait
from filaviva.telemetry.endpoint import Endpoint, bind
from filaviva.telemetry.metrics import Metrics
from fixtures.waiting import until

_SERVICE = """
import asyncio
from filaviva import service

async def main(settings, stop):
    print("ready", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    {ending}

service.run("test", main, patience=lambda _: 0.5)
"""
_POLITE = "pass"
_STUBBORN = """
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""
_BLOCKED = "import time; await asyncio.to_thread(time.sleep, 60)"
_SILENT = "await asyncio.Event().wait()"
_BROKEN = "raise ZeroDivisionError"
_RIGHT = {
    "FILAVIVA_BROKER__URL": "amqp://me:hush@broker/",
    "FILAVIVA_POSTGRES__URL": "postgresql://me:hush@database/x",
}


def service(ending: str, **different: str) -> "subprocess.Popen[str]":
    ours = {k: v for k, v in os.environ.items() if not k.startswith("FILAVIVA_")}
    return subprocess.Popen(
        [sys.executable, "-c", _SERVICE.format(ending=ending)],
        env={**ours, **_RIGHT, **different},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_to_stop_and_the_exit_is_clean(number: signal.Signals) -> None:
    process = service(_POLITE)
    assert heard(process) == "ready"

    process.send_signal(number)

    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out.strip()) == (0, "stopping")


@pytest.mark.parametrize(
    "ending", [_SILENT, _STUBBORN, _BLOCKED], ids=["silent", "stubborn", "blocked thread"]
)
def test_a_service_that_does_not_end_in_time_is_ended_without_a_second_signal(ending: str) -> None:
    process = service(ending)
    assert heard(process) == "ready"

    process.send_signal(signal.SIGTERM)

    out, err = process.communicate(timeout=20)
    assert (process.returncode, out.splitlines()[0]) == (0, "stopping")
    assert "did not stop in time" in err


@pytest.mark.parametrize("ending", [_STUBBORN, _BLOCKED], ids=["stubborn", "blocked thread"])
def test_a_second_signal_ends_it_at_once_whatever_it_is_doing(ending: str) -> None:
    process = service(ending)
    assert heard(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert heard(process) == "stopping"

    process.send_signal(signal.SIGTERM)

    process.communicate(timeout=20)
    assert process.returncode == 1


_LEFT_TASK = """
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
    left = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
"""
_LEFT_THREAD = """
    import time
    left = asyncio.create_task(asyncio.to_thread(time.sleep, 60))
    await asyncio.sleep(0.1)
"""


@pytest.mark.parametrize("left", [_LEFT_TASK, _LEFT_THREAD], ids=["task", "thread"])
def test_work_that_would_not_end_does_not_outlive_the_service(left: str) -> None:
    process = service(left)
    assert heard(process) == "ready"

    process.send_signal(signal.SIGTERM)

    process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_service_that_breaks_ends_though_work_is_left() -> None:
    process = service(_LEFT_THREAD + "    raise ZeroDivisionError")
    assert heard(process) == "ready"

    process.send_signal(signal.SIGTERM)

    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "ZeroDivisionError" in err


def test_a_service_that_breaks_ends_with_an_error() -> None:
    process = service(_BROKEN)
    assert heard(process) == "ready"
    process.send_signal(signal.SIGTERM)

    _, err = process.communicate(timeout=20)

    assert process.returncode == 1
    assert "ZeroDivisionError" in err


def test_a_wrong_setting_ends_the_start_with_code_2_and_one_line() -> None:
    process = service(_POLITE, FILAVIVA_WORKER__CONCURRENCY="many")

    out, err = process.communicate(timeout=20)

    assert (process.returncode, out) == (2, "")
    assert err.splitlines()[-1].startswith("FILAVIVA_WORKER__CONCURRENCY: found 'many', expected")
    assert "Traceback" not in err


class Turning:
    """A loop that turns until stopped, or breaks."""

    def __init__(self, *, breaks: bool = False, ends: bool = False) -> None:
        self._breaks, self._ends = breaks, ends
        self.ended = False

    async def run(self, stop: asyncio.Event) -> None:
        if self._breaks:
            raise ZeroDivisionError
        if not self._ends:
            await stop.wait()
        self.ended = True


async def test_when_one_loop_breaks_all_end() -> None:
    steady = Turning()

    with pytest.raises(ExceptionGroup) as broken:
        async with asyncio.timeout(10):
            await serve(steady, Turning(breaks=True), stop=asyncio.Event())

    assert isinstance(broken.value.exceptions[0], ZeroDivisionError)


async def test_when_one_loop_ends_the_others_are_asked_to() -> None:
    steady, stop = Turning(), asyncio.Event()

    async with asyncio.timeout(10):
        await serve(steady, Turning(ends=True), stop=stop)

    assert (steady.ended, stop.is_set()) == (True, True)


async def test_a_pause_ends_at_once_when_asked_to_stop() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_soon(stop.set)

    async with asyncio.timeout(10):
        await wait(stop, 3600)


async def test_a_blocked_loop_shows_in_the_metrics() -> None:
    metrics, stop = Metrics(), asyncio.Event()
    measuring = asyncio.create_task(LoopLag(metrics, every=0.05).run(stop))
    await asyncio.sleep(0)

    time.sleep(0.4)  # noqa: ASYNC251 - on purpose

    await until(lambda: metrics.registry.get_sample_value("filaviva_event_loop_lag_seconds") > 0.2)
    stop.set()
    await measuring


async def test_a_loop_that_was_late_is_seen_by_who_looks_now_and_then() -> None:
    class Told(list[float]):
        set = list.append

    metrics, stop, told = Metrics(), asyncio.Event(), Told()
    metrics.loop_lag = told  # type: ignore[assignment]
    measuring = asyncio.create_task(LoopLag(metrics, every=0.01).run(stop))
    await until(lambda: told)

    time.sleep(0.3)  # noqa: ASYNC251 - on purpose
    before = len(told)
    await until(lambda: len(told) > before + 3)
    stop.set()
    await measuring

    assert min(told[before:]) > 0.2


@asynccontextmanager
async def endpoint(problems: list[str]) -> AsyncIterator[str]:
    async def found() -> list[str]:
        return problems

    stop = asyncio.Event()
    metrics = Metrics()
    metrics.jobs_submitted.labels("a.b", "http", "accepted").inc()
    made = Endpoint(metrics.registry, found, host="127.0.0.1", port=0)
    serving = asyncio.create_task(made.run(stop))
    yield f"http://127.0.0.1:{made.port}"
    stop.set()
    await asyncio.wait_for(serving, 10)


async def asked(url: str) -> tuple[int, str, str]:
    def ask() -> tuple[int, str, str]:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own
                return answer.status, answer.headers["content-type"], answer.read().decode()
        except HTTPError as refused:
            return refused.code, refused.headers["content-type"], refused.read().decode()

    return await asyncio.to_thread(ask)


async def test_the_metrics_port_tells_metrics_life_and_readiness() -> None:
    problems: list[str] = []
    async with endpoint(problems) as url:
        status, kind, text = await asked(f"{url}/metrics")
        assert (status, kind.startswith("text/plain")) == (200, True)
        assert (
            'filaviva_jobs_submitted_total{result="accepted",source="http",type="a.b"} 1.0' in text
        )
        assert "filaviva_build_info{" in text
        assert (await asked(f"{url}/healthz"))[0] == 200
        assert (await asked(f"{url}/readyz"))[0] == 200

        problems.append("database: out of reach")
        status, _, text = await asked(f"{url}/readyz")
        assert status == 503
        assert json.loads(text)["problems"] == ["database: out of reach"]
        assert (await asked(f"{url}/healthz"))[0] == 200  # alive all the same
        assert (await asked(f"{url}/other"))[0] == 404


def test_a_port_that_is_taken_ends_the_start_and_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(ConfigurationError, match=f"port {port}"):
            bind("127.0.0.1", port)


def test_a_service_may_open_as_many_files_as_the_system_lets_it() -> None:
    limits = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)"
    kind = "resource.RLIMIT_NOFILE"
    lowered = f"resource.setrlimit({kind}, (256, resource.getrlimit({kind})[1]))"
    program = _SERVICE.format(ending=limits).replace("await stop.wait()", "")
    program = program.replace("import asyncio", f"import asyncio, resource\n{lowered}", 1)
    ours = {k: v for k, v in os.environ.items() if not k.startswith("FILAVIVA_")}

    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**ours, **_RIGHT},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    found = next(line for line in answer.stdout.splitlines() if line[:1].isdigit())
    soft, hard = map(int, found.split())
    assert soft == min(hard, 65_536) if hard >= 0 else soft == 65_536
