"""Who still sends which version: counted in memory, written now and then, read by the operator."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.operations.contract_uses import uses
from filaviva.uses import Uses, add
from fixtures.command_line import CommandLine
from fixtures.retrying import Jobs


async def read(engine: AsyncEngine, **wanted: Any) -> list[tuple[str, int, str, int]]:
    async with engine.connect() as connection:
        found = await uses(connection, **{"kind": None, "version": None, "days": 30} | wanted)
    return [(one["type"], one["version"], one["source"], one["uses"]) for one in found]


async def test_what_several_processes_have_counted_adds_up(engine: AsyncEngine) -> None:
    first, second = Uses(engine), Uses(engine)
    for number in range(100):
        first.count("order.ship", 1 + number % 2, "key:a")
        second.count("order.ship", 2 - number % 2, "key:a")
    second.count("order.paid", 1, "event:/shop", 3)

    await asyncio.gather(first.step(), second.step())

    assert await read(engine) == [
        ("order.paid", 1, "event:/shop", 3),
        ("order.ship", 1, "key:a", 100),
        ("order.ship", 2, "key:a", 100),
    ]
    assert await first.step() == 0
    assert await read(engine, kind="order.ship", version=1) == [("order.ship", 1, "key:a", 100)]


async def test_nobody_can_make_it_grow_without_bounds(engine: AsyncEngine) -> None:
    counted = Uses(engine)
    for number in range(5000):
        counted.count("order.ship", 1, f"event:{number}\0{'x' * 1000}")

    await counted.step()

    found = await read(engine)
    assert len(found) == 501
    assert sum(times for *_, times in found) == 5000


async def test_while_the_database_is_away_nothing_counted_is_lost(jobs: Jobs) -> None:
    counted = Uses(jobs.engine)
    counted.count("order.ship", 1, "key:a")
    await jobs.all("ALTER TABLE filaviva.contract_uses RENAME TO hidden")

    assert await counted.step() == 0
    await jobs.all("ALTER TABLE filaviva.hidden RENAME TO contract_uses")
    counted.count("order.ship", 1, "key:a")
    await counted.step()

    assert await read(jobs.engine) == [("order.ship", 1, "key:a", 2)]


async def test_a_process_that_ends_writes_what_it_has(engine: AsyncEngine) -> None:
    counted, stop = Uses(engine, pause=60), asyncio.Event()
    running = asyncio.create_task(counted.run(stop))
    counted.count("order.ship", 1, "key:a")

    stop.set()
    await asyncio.wait_for(running, 10)

    assert await read(engine) == [("order.ship", 1, "key:a", 1)]


@pytest.mark.parametrize(("words", "shown"), [((), 1), (("order.paid",), 0)])
async def test_the_operator_is_told(
    engine: AsyncEngine, database: str, words: tuple[str, ...], shown: int
) -> None:
    counted = Uses(engine)
    counted.count("order.ship", 1, "key:a")
    await counted.step()

    cli = CommandLine(FILAVIVA_POSTGRES__URL=database)
    said = await asyncio.to_thread(cli, "contracts", "uses", *words, "--json")

    assert len(said.json["items"]) == shown


async def test_senders_whose_names_are_cut_to_the_same_are_counted_together(
    engine: AsyncEngine,
) -> None:
    long = "x" * 300

    async with engine.begin() as connection:
        await add(connection, {("a.b", 1, f"{long}1"): 1, ("a.b", 1, f"{long}2"): 2})

    assert [times for *_, times in await read(engine)] == [3]
