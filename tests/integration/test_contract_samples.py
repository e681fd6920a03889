"""Workers keep outlines of what they are sent: who has asked, some of each version, for a time."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from filaviva import App, Context, Contract
from filaviva.settings import RetentionGroup, SamplesGroup
from filaviva_retry_scheduler.retention import Retention
from filaviva_worker.sampling import Sampling
from fixtures.command_line import CommandLine
from fixtures.retrying import Jobs

TYPE = "order.paid"


class Paid(Contract, type=TYPE, version=1):
    """An order is paid."""

    name: str
    size: int = 0


@pytest.fixture
def app() -> App:
    made = App("shop")

    @made.handler(Paid)
    async def handle(_job: Paid, _ctx: Context) -> None: ...

    return made


def sampling(app: App, jobs: Jobs, *types: str, every: float = 1e-9, most: int = 3) -> Sampling:
    group = SamplesGroup(types=types, every_seconds=every, per_version=most)
    return Sampling(app, jobs.engine, group)


async def rows(jobs: Jobs) -> list[Any]:
    found = await jobs.all("SELECT * FROM filaviva.contract_samples ORDER BY last_seen_at")
    return list(found)


async def take(one: Sampling, **data: Any) -> int:
    one.offer(TYPE, 1, json.dumps({"name": "Ana", **data}))
    return await one.step()


async def test_nothing_is_kept_unless_somebody_asked(app: App, jobs: Jobs) -> None:
    assert await take(sampling(app, jobs)) == 0
    assert await take(sampling(app, jobs, "order.sent")) == 0
    assert await rows(jobs) == []


async def test_outlines_are_kept_counted_and_without_contents(app: App, jobs: Jobs) -> None:
    one = sampling(app, jobs, "*")

    for _ in range(3):
        await take(one, size=123)

    (row,) = await rows(jobs)
    assert row["seen"] == 3
    assert row["outline"]["members"]["size"] == {"number": "999"}
    assert "Ana" not in json.dumps(row["outline"])


async def test_of_each_version_the_last_seen_are_kept_and_no_more(app: App, jobs: Jobs) -> None:
    one, other = (sampling(app, jobs, TYPE) for _ in range(2))

    for power in range(6):
        await asyncio.gather(take(one, size=10**power), take(other, size=10**power))

    drawn = [row["outline"]["members"]["size"]["number"] for row in await rows(jobs)]
    assert drawn == ["9999", "99999", "999999"]


async def test_a_process_takes_one_now_and_then_and_nothing_large(app: App, jobs: Jobs) -> None:
    one = sampling(app, jobs, TYPE, every=3600)

    assert await take(one, name="x" * 70_000) == 0
    assert await take(one) == 1
    assert await take(one, size=7) == 0


async def test_what_was_not_seen_for_long_is_forgotten(app: App, jobs: Jobs) -> None:
    one = sampling(app, jobs, TYPE)
    await take(one, size=1)
    await jobs.all("UPDATE filaviva.contract_samples SET last_seen_at = now() - interval '91 days'")
    await take(one, size=22)

    await Retention(jobs.engine, RetentionGroup()).step()

    (row,) = await rows(jobs)
    assert row["outline"]["members"]["size"] == {"number": "99"}


async def test_a_candidate_is_checked_against_samples_of_the_database_and_of_a_file(
    app: App,
    jobs: Jobs,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await take(sampling(app, jobs, TYPE), size=250)
    code = "\n".join(
        [
            "from typing import Annotated",
            "from pydantic import Field",
            "from filaviva import App, Context, Contract",
            'app = App("shop")',
            f'class Paid(Contract, type="{TYPE}", version=1):',
            "    name: str",
            "    size: Annotated[int, Field(le=99)] = 0",
            "@app.handler(Paid)",
            "async def handle(job: Paid, ctx: Context) -> None: ...",
        ]
    )
    (tmp_path / "a_sampled_shop.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(FILAVIVA_POSTGRES__URL=database, FILAVIVA_APP="a_sampled_shop:app")
    alone = CommandLine(FILAVIVA_APP="a_sampled_shop:app")

    exported = await asyncio.to_thread(cli, "contracts", "export")
    without = await asyncio.to_thread(cli, "contracts", "check")
    live = await asyncio.to_thread(cli, "contracts", "check", "--against-samples")
    listed = await asyncio.to_thread(cli, "contracts", "samples", TYPE, "--json")
    (tmp_path / "samples.json").write_text(listed.out)
    offline = await asyncio.to_thread(alone, "contracts", "check", "--samples", "samples.json")

    assert exported.code == 0, exported.err
    assert without.code == 0
    for told in (live, offline):
        assert told.code == 4, told.err
        assert f"refused  {TYPE} v1, sent once: /size: the value is greater than" in told.out
