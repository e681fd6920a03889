"""The intake while the database is away, and beside a message that cannot be stored."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from sqlalchemy import event

from filaviva.broker.consumer import Delivery
from filaviva.broker.topology import Topology
from filaviva.database import connect
from filaviva.registry import Registry
from filaviva_dlq_handler.filing import Filed
from filaviva_dlq_handler.intake import Intake
from fixtures.dying import Morgue, Sent
from fixtures.thief import Thief
from fixtures.waiting import until

TOPOLOGY = Topology()
tags = count(1)


def delivered(message: Sent, session: str = "first") -> Delivery:
    return Delivery(
        body=message.body,
        content_type=message.content_type,
        message_id=message.message_id,
        type=None,
        correlation_id=None,
        headers=message.headers,
        exchange=message.exchange,
        routing_key=message.routing_key,
        redelivered=False,
        tag=next(tags),
        session=session,
    )


class Desk:
    """An intake whose way to the database can be cut, and what it settled."""

    def __init__(self, intake: Intake, thief: Thief) -> None:
        self.intake = intake
        self.thief = thief
        self.settled: list[Delivery] = []
        self.tried = 0
        self.receive: Any = intake.receive(TOPOLOGY.dead_letters, self.settled.append)


@pytest.fixture
async def desk(database: str) -> AsyncIterator[Desk]:
    thief = Thief(database)
    await thief.open()
    engine = connect(thief.url, name="test-intake", size=2)
    filed: list[Filed] = []
    desk = Desk(Intake(engine, Registry(engine), done=filed.append, pause=0.05), thief)

    @event.listens_for(engine.sync_engine, "do_connect")
    def trying(*_: object) -> None:
        desk.tried += 1

    stop = asyncio.Event()
    running = asyncio.create_task(desk.intake.run(stop))
    yield desk
    stop.set()
    await running
    await engine.dispose()
    await thief.close()


async def test_an_outage_of_the_database_settles_nothing_and_loses_nothing(
    morgue: Morgue, desk: Desk
) -> None:
    deaths = [await morgue.dead(await morgue.failed()) for _ in range(3)]
    await desk.thief.close()

    for death in deaths:
        desk.receive(delivered(death))
    await until(lambda: desk.tried)
    assert desk.settled == []
    await desk.thief.open()

    await until(lambda: len(desk.settled) == 3)
    assert len(await morgue.letters()) == 3


async def test_a_commit_whose_answer_was_lost_is_filed_once(morgue: Morgue, desk: Desk) -> None:
    death = await morgue.dead(await morgue.failed())
    desk.thief.steal = 1

    desk.receive(delivered(death))

    await until(lambda: len(desk.settled) == 1)
    assert desk.thief.stolen == 1
    assert len(await morgue.letters()) == 1


async def test_a_locked_job_holds_only_its_own_letter_up(morgue: Morgue, desk: Desk) -> None:
    locked, free = await morgue.failed(), await morgue.failed()
    deaths = [await morgue.dead(locked), await morgue.dead(free)]

    async with morgue.engine.begin() as connection:
        await connection.exec_driver_sql(
            "SELECT id FROM filaviva.jobs WHERE id = $1 FOR UPDATE", (locked,)
        )
        for death in deaths:
            desk.receive(delivered(death))
        await until(lambda: len(desk.settled) == 1)

    await until(lambda: len(desk.settled) == 2)
    assert len(await morgue.letters()) == 2


async def test_what_a_lost_channel_had_delivered_is_dropped_and_comes_again(
    morgue: Morgue, desk: Desk
) -> None:
    nameless = Sent(body=b"x", message_id=None)
    await desk.thief.close()
    desk.receive(delivered(nameless))
    desk.receive(delivered(nameless, session="second"))
    await desk.thief.open()

    await until(lambda: len(desk.settled) >= 1)
    assert [one.session for one in desk.settled] == ["second"]
    assert len(await morgue.letters()) == 1
