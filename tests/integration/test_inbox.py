"""The inbox that all consumers share, on a real database."""

import asyncio
from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import inbox
from filaviva.database.transaction import transact
from fixtures.retrying import Jobs
from fixtures.waiting import until


async def entered(jobs: Jobs, ids: Iterable[str], consumer: str = "c") -> frozenset[str]:
    async def work(connection: AsyncConnection) -> frozenset[str]:
        return await inbox.enter(connection, consumer, ids)

    return await transact(jobs.engine, work)


async def duplicates(jobs: Jobs) -> dict[str, int]:
    rows = await jobs.all("SELECT message_id, duplicates FROM filaviva.inbox")
    return {row["message_id"]: row["duplicates"] for row in rows}


async def test_a_message_is_first_once_per_consumer(jobs: Jobs) -> None:
    assert await entered(jobs, ["a", "b"]) == {"a", "b"}
    assert await entered(jobs, ["b", "c"]) == {"c"}
    assert await entered(jobs, ["b"], consumer="another") == {"b"}


async def test_every_further_delivery_is_counted(jobs: Jobs) -> None:
    for _ in range(3):
        await entered(jobs, ["a"])

    assert await duplicates(jobs) == {"a": 2}


async def test_two_copies_in_one_batch_are_one_message(jobs: Jobs) -> None:
    assert await entered(jobs, ["a", "a", "b"]) == {"a", "b"}


async def test_a_message_whose_effect_was_rolled_back_is_first_again(jobs: Jobs) -> None:
    async with jobs.engine.connect() as connection:
        await inbox.enter(connection, "c", ["a"])
        await connection.rollback()

    assert await entered(jobs, ["a"]) == {"a"}


async def test_a_second_delivery_waits_for_the_first_ones_commit(jobs: Jobs) -> None:
    async with jobs.engine.begin() as connection:
        await inbox.enter(connection, "c", ["a"])
        second = asyncio.create_task(entered(jobs, ["a"]))
        await until(
            lambda: jobs.all(
                "SELECT 1 FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
        )

    assert await second == frozenset()


async def test_a_hundred_deliveries_at_once_in_any_order_let_each_message_through_once(
    jobs: Jobs,
) -> None:
    ids = [f"m{number}" for number in range(20)]

    firsts = await asyncio.gather(*(entered(jobs, ids[:: 1 if n % 2 else -1]) for n in range(100)))

    assert sorted(message for first in firsts for message in first) == sorted(ids)
    assert set((await duplicates(jobs)).values()) == {99}
