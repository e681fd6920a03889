"""Wake-ups gather only while they flow, and never for longer than it takes to have enough."""

import asyncio
import time

import pytest

from filaviva_worker import gathering
from filaviva_worker.gathering import Gathering

ROOM = 500


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits longer than he should does it visibly."""
    monkeypatch.setattr(gathering, "_PATIENCE", 60.0)
    monkeypatch.setattr(gathering, "_RECENT", 60.0)


async def test_the_first_wake_up_does_not_wait() -> None:
    async with asyncio.timeout(5):
        await Gathering().wait(1, ROOM, asyncio.Event())


@pytest.mark.parametrize("before", [0, 1, 3])
async def test_one_after_a_few_does_not_wait(before: int) -> None:
    found = Gathering()
    found.claimed(before)
    async with asyncio.timeout(5):
        await found.wait(1, ROOM, asyncio.Event())


async def test_one_long_after_many_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_RECENT", 0.0)
    found = Gathering()
    found.claimed(100)
    async with asyncio.timeout(5):
        await found.wait(1, ROOM, asyncio.Event())


async def test_in_a_flow_it_waits_until_there_are_enough() -> None:
    found = Gathering()
    found.claimed(30)
    waits = asyncio.create_task(found.wait(5, ROOM, asyncio.Event()))
    for waiting in range(6, 64):
        await asyncio.sleep(0)
        found.arrived(waiting)
    assert not waits.done()
    found.arrived(64)
    async with asyncio.timeout(5):
        await waits


async def test_what_fills_the_free_slots_is_enough() -> None:
    found = Gathering()
    found.claimed(30)
    async with asyncio.timeout(5):
        await found.wait(8, 8, asyncio.Event())


async def test_a_stop_ends_the_wait() -> None:
    found, stop = Gathering(), asyncio.Event()
    found.claimed(30)
    waits = asyncio.create_task(found.wait(5, ROOM, stop))
    stop.set()
    async with asyncio.timeout(5):
        await waits


async def test_a_flow_that_ends_waits_no_longer_than_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "_PATIENCE", 0.002)
    found = Gathering()
    found.claimed(30)
    started = time.monotonic()
    async with asyncio.timeout(5):
        await found.wait(5, ROOM, asyncio.Event())
    assert time.monotonic() - started >= 0.0015
