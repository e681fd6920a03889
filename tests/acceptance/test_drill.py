"""The drill on real services: a cut of seconds with our own observers; the full one is long."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import pytest_asyncio

from filaviva.database import connect
from filaviva.dev.ports import LOOPBACK, free_port
from filaviva.drilling.drill import drill
from filaviva.drilling.journey import Look
from filaviva.drilling.plan import FULL_SECONDS, TENANT, Plan, Scraped
from filaviva.errors import ConfigurationError, Rejected
from filaviva.operations import drills
from fixtures.journey import Journey
from fixtures.slack import SlackStandIn

# `alone`: what shrinks with the cut is the windows of the rules, and not the machine's work.
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.alone,
    pytest.mark.timeout(600),
]


class Log:
    """A screen that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.cut = asyncio.Event()

    def say(self, text: str) -> None:
        self.lines.append(text)

    def show(self, look: Look) -> None:
        if "cut" in look.phase and look.states.get("failed"):
            self.cut.set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(
    module_database: str, module_vhost: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Journey]:
    """All services, with a place for the drill's provider."""
    with SlackStandIn() as slack:
        folder = tmp_path_factory.mktemp("drilled")
        ground = Journey(module_database, module_vhost, folder, slack)
        ground.environment["FILAVIVA_DRILL__PROVIDER_URL"] = f"http://{LOOPBACK}:{free_port()}"
        await ground.set_up()
        await ground.start_all()
        yield ground
        ground.end()
        await ground.books.close()


def planned(stack: Journey, folder: Path, seconds: float, *, observed: bool = True) -> Plan:
    """A drill on this stack."""
    provider = urlsplit(stack.environment["FILAVIVA_DRILL__PROVIDER_URL"])
    metrics = {
        name: [f"http://{LOOPBACK}:{each.metrics_port}/metrics" for each in processes]
        for name, processes in stack.services.items()
    }
    return Plan(
        database=stack.database,
        api=f"http://{LOOPBACK}:{stack.now('producer').http_port}",
        host=str(provider.hostname),
        port=int(provider.port or 0),
        author="cli:test",
        seconds=seconds,
        scraped=Scraped(metrics, folder) if observed else None,
    )


async def kept(stack: Journey, *, passed: bool = False) -> drills.Drill | None:
    """The last drill, as it is on record."""
    engine = connect(stack.database, name="test", size=1)
    async with engine.connect() as connection:
        last = await drills.last(connection, passed=passed)
    await engine.dispose()
    return last


async def left(stack: Journey) -> list[int]:
    """Jobs, dead letters and keys of drills that are open."""
    return [
        await stack.value(f"SELECT count(*) FROM filaviva.{what}", TENANT)
        for what in (
            "jobs WHERE tenant = $1 AND state NOT IN ('succeeded', 'failed', 'canceled')",
            "dead_letters WHERE tenant = $1 AND status IN ('open', 'replaying')",
            "api_keys WHERE tenant = $1 AND revoked_at IS NULL",
        )
    ]


def observers(folder: Path) -> list[psutil.Process]:
    """Processes that name the folder."""
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(each.info["cmdline"] or ()) and each.pid != os.getpid()
    ]


async def test_a_drill_of_seconds_passes_and_is_kept(stack: Journey, tmp_path: Path) -> None:
    report = await drill(planned(stack, tmp_path, 5), Log())

    assert [(fact.name, fact.found) for fact in report.facts if not fact.holds] == []
    last = await kept(stack, passed=True)
    assert last is not None
    assert (last.id, last.cut_seconds, last.report["passed"]) == (report.id, 5, True)
    assert await left(stack) == [0, 0, 0]
    assert observers(tmp_path) == []


async def test_a_drill_that_is_interrupted_leaves_nothing_behind(
    stack: Journey, tmp_path: Path
) -> None:
    log = Log()
    task = asyncio.create_task(drill(planned(stack, tmp_path, 60, observed=False), log))
    await asyncio.wait_for(log.cut.wait(), 30)

    with pytest.raises(Rejected, match=r"another drill runs .* cli:test at"):
        await drill(planned(stack, tmp_path, 60, observed=False), Log())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await left(stack) == [0, 0, 0]
    last = await kept(stack)
    assert last is not None
    assert (last.passed, last.report) == (False, {"ended": "the drill was interrupted"})
    groups = await stack.fetch("SELECT state FROM filaviva.failure_groups")
    assert {each["state"] for each in groups} == {"resolved"}


async def test_a_drill_whose_provider_nobody_reaches_says_so_before_the_cut(
    stack: Journey, tmp_path: Path
) -> None:
    plan, log = planned(stack, tmp_path, 60, observed=False), Log()
    elsewhere = replace(plan, port=free_port(), patience=1)

    with pytest.raises(ConfigurationError, match="found connection, expected their FILAVIVA_DRILL"):
        await drill(elsewhere, log)

    assert await left(stack) == [0, 0, 0]
    assert not any("FILAVIVA_SLACK__WEBHOOK_URL" in line for line in log.lines)


@pytest.mark.soak
async def test_the_full_drill_passes(stack: Journey, tmp_path: Path) -> None:
    report = await drill(planned(stack, tmp_path, FULL_SECONDS), Log())

    assert [(fact.name, fact.found) for fact in report.facts if not fact.holds] == []
