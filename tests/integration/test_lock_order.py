"""Dead letters in opposite orders: who changes several rows locks them in key order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event, text

from filaviva.broker.messages import CONFIRMED
from filaviva.database.transaction import code, transact
from filaviva.errors import Rejected
from filaviva.operations.dead_letters import Filter
from filaviva.operations.discard import discard
from filaviva.operations.replay import ReplayRequest, stop
from filaviva.operations.requeue import requeue
from filaviva.registry import Registry
from filaviva.telemetry.metrics import Metrics
from filaviva_dlq_handler.closing import Closing
from filaviva_dlq_handler.sending import Sending
from fixtures.dying import Morgue, Sent, died
from fixtures.dying import event as published
from fixtures.waiting import until

SEVERAL = 12


class Taken:
    """An exchange that takes everything."""

    async def publish(self, messages: Sequence[Any]) -> list[Any]:
        return [CONFIRMED for _ in messages]


def sender(morgue: Morgue, registry: Registry) -> Sending:
    return Sending(morgue.engine, registry, Taken(), hand_over=lambda _: None, metrics=Metrics())


def request(letters: Sequence[UUID]) -> ReplayRequest:
    return ReplayRequest(letters=Filter(ids=tuple(letters)), author="ana", reason="again")


async def letters_of(morgue: Morgue) -> list[dict[str, Any]]:
    """Failed jobs and their letters, the oldest letter for the youngest job."""
    jobs = [await morgue.failed(f"broke {n}") for n in range(SEVERAL)]
    for job in reversed(jobs):
        await morgue.file(await morgue.dead(job))
    await turned_over(morgue)
    return await morgue.letters()


async def turned_over(morgue: Morgue) -> None:
    """Let rows lie in the opposite order of their keys: a scan meets the last one first."""
    for table in ("dead_letters", "failure_groups"):
        await morgue.all(f"ALTER TABLE filaviva.{table} DISABLE TRIGGER ALL")
        await morgue.all(
            f"WITH gone AS (DELETE FROM filaviva.{table} RETURNING *)"
            f" INSERT INTO filaviva.{table} SELECT * FROM gone ORDER BY id DESC"
        )
        await morgue.all(f"ALTER TABLE filaviva.{table} ENABLE TRIGGER ALL")
    await morgue.all("ANALYZE filaviva.dead_letters")


async def in_key_order(
    morgue: Morgue, table: str, keys: Sequence[Any], work: Callable[[], Awaitable[object]]
) -> None:
    """While somebody holds the first row, the work waits for it and holds none of the others."""
    async with morgue.engine.connect() as holder:
        await _lock(holder, table, keys[0])
        working = asyncio.ensure_future(work())
        await until(lambda: _waits(morgue))
        for key in keys[1:]:
            await _lock(holder, table, key)
        await holder.rollback()
    await working


async def _lock(holder: Any, table: str, key: Any) -> None:
    statement = f"SELECT 1 FROM filaviva.{table} WHERE id = :id FOR UPDATE NOWAIT"
    await holder.execute(text(statement), {"id": key})


async def _waits(morgue: Morgue) -> bool:
    found = await morgue.one(
        "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )
    return bool(found["n"])


async def all_succeed(morgue: Morgue) -> None:
    """Let everything that was sent back come to a good end."""
    for state, before in (("running", "queued"), ("succeeded", "running")):
        change = "UPDATE filaviva.jobs SET state = :state WHERE state = :before"
        await morgue.all(change, state=state, before=before)


@pytest.fixture
async def registry(morgue: Morgue) -> Registry:
    return await morgue.contract({})


async def test_jobs_that_are_sent_back_take_their_letters_in_order(morgue: Morgue) -> None:
    letters = await letters_of(morgue)

    async def retry() -> None:
        jobs = [letter["job_id"] for letter in letters]
        await transact(morgue.engine, lambda c: requeue(c, jobs, author="ana", reason="again"))

    await in_key_order(morgue, "dead_letters", [letter["id"] for letter in letters], retry)

    assert {letter["status"] for letter in await morgue.letters()} == {"replaying"}


async def test_a_replay_takes_its_letters_in_order(morgue: Morgue, registry: Registry) -> None:
    ids = [letter["id"] for letter in await letters_of(morgue)]

    await in_key_order(
        morgue, "dead_letters", ids, lambda: morgue.replay(request(ids[::-1]), registry)
    )

    assert {letter["status"] for letter in await morgue.letters()} == {"replaying"}


async def test_a_stopped_replay_frees_its_letters_in_order(
    morgue: Morgue, registry: Registry
) -> None:
    ids = [letter["id"] for letter in await letters_of(morgue)]
    started = await morgue.replay(request(ids), registry)

    async def halt() -> None:
        await transact(morgue.engine, lambda c: stop(c, started["id"], author="ana"))

    await in_key_order(morgue, "dead_letters", ids, halt)

    assert {letter["status"] for letter in await morgue.letters()} == {"open"}


async def test_letters_that_could_not_be_sent_open_again_in_order(
    morgue: Morgue, registry: Registry
) -> None:
    ids = [letter["id"] for letter in await letters_of(morgue)]
    await morgue.replay(request(ids), registry)
    await morgue.all("UPDATE filaviva.jobs SET state = 'queued'")

    await in_key_order(morgue, "dead_letters", ids, sender(morgue, registry).step)

    assert {letter["status"] for letter in await morgue.letters()} == {"open"}


async def test_foreign_messages_that_went_are_closed_in_order(morgue: Morgue) -> None:
    known = await morgue.contract({}, "order.placed")
    for n in range(SEVERAL):
        body = published("order.placed.v1", id=f"e{n}")
        await morgue.file(Sent(body=body, message_id=f"m{n}", headers=died("rejected")))
    letters = await morgue.letters()
    await morgue.replay(request([letter["id"] for letter in letters]), known)
    await turned_over(morgue)

    ids = [letter["id"] for letter in letters]
    await in_key_order(morgue, "dead_letters", ids, sender(morgue, known).step)

    assert {letter["status"] for letter in await morgue.letters()} == {"resolved"}


async def test_what_died_is_filed_in_the_order_of_the_jobs_and_of_the_groups(
    morgue: Morgue,
) -> None:
    jobs = [await morgue.failed(f"broke {word}") for word in "hgfedcba"]
    for job in jobs:
        await morgue.file(await morgue.dead(job))
    again = [await morgue.failed(f"broke {word}") for word in "abcdefgh"]
    deaths = [await morgue.dead(job) for job in again]
    more = [await morgue.failed(f"broke {word}") for word in "abcdefgh"]
    more_deaths = [await morgue.dead(job) for job in more]
    groups = await morgue.all("SELECT id FROM filaviva.failure_groups ORDER BY fingerprint")

    await in_key_order(morgue, "jobs", sorted(again), lambda: morgue.file(*deaths[::-1]))
    await in_key_order(
        morgue,
        "failure_groups",
        [group["id"] for group in groups],
        lambda: morgue.file(*more_deaths[::-1]),
    )

    assert len(await morgue.letters()) == 24


async def test_letters_that_close_settle_their_groups_in_order(
    morgue: Morgue, registry: Registry
) -> None:
    letters = await letters_of(morgue)
    await morgue.replay(request([letter["id"] for letter in letters]), registry)
    await sender(morgue, registry).step()
    await all_succeed(morgue)
    groups = await morgue.all("SELECT id FROM filaviva.failure_groups ORDER BY fingerprint")

    closing = Closing(morgue.engine, Metrics())
    await in_key_order(morgue, "failure_groups", [group["id"] for group in groups], closing.step)

    assert {group["state"] for group in await morgue.groups()} == {"resolved"}


async def test_filing_closing_replaying_and_discarding_at_once_never_meet_in_a_deadlock(
    morgue: Morgue, registry: Registry
) -> None:
    deadlocks: list[str] = []

    def look(context: Any) -> None:
        if code(context.original_exception) == "40P01":
            deadlocks.append(str(context.statement))

    event.listen(morgue.engine.sync_engine, "handle_error", look)
    sending, closing = sender(morgue, registry), Closing(morgue.engine, Metrics())

    async def throw_away(letter: UUID) -> None:
        with suppress(Rejected):
            await transact(morgue.engine, lambda c: discard(c, letter, author="a", reason="x"))

    async def replay(ids: Sequence[UUID]) -> None:
        with suppress(Rejected):
            await morgue.replay(request(ids), registry)

    for _ in range(4):
        ids = [letter["id"] for letter in await letters_of(morgue)]
        jobs = [await morgue.failed(f"broke {n}") for n in reversed(range(SEVERAL))]
        deaths = [await morgue.dead(job) for job in jobs]
        await asyncio.gather(
            morgue.file(*deaths[::2]),
            morgue.file(*deaths[::-2]),
            replay(ids[::-1]),
            replay(ids[2:]),
            *(throw_away(letter) for letter in ids[:2]),
        )
        await asyncio.gather(sending.step(), closing.step(), sending.step(), replay(ids))
        await all_succeed(morgue)
        await asyncio.gather(closing.step(), sending.step(), closing.step(), replay(ids[::-1]))

    assert deadlocks == []
