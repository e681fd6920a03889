"""Events are told apart as contracts/conformance/inbox.json says."""

from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import App
from filaviva.database import connect
from filaviva.events import Event
from filaviva.operations.events import take
from filaviva.publishing import publish
from filaviva_worker import event_intake
from fixtures.conformance import CONTRACTS, delivery, recorded


def app() -> App:
    made = App("books")
    for contract in CONTRACTS.values():
        made.on_event(contract, queue="books", name="book")(nothing)
    return made


async def nothing(event: Any, context: Any) -> None:
    pass


async def outcome(connection: AsyncConnection, message: dict[str, Any]) -> str:
    event = event_intake.read(delivery(message))
    assert isinstance(event, Event)
    taken = await take(connection, [event], queue="books")
    if taken.created:
        return "first"
    return "id_reused" if taken.reused else "duplicate"


@pytest.mark.parametrize("case", recorded("inbox.json"), ids=lambda case: case["name"])
async def test_events_are_told_apart_as_the_set_says(
    case: dict[str, Any], module_database: str
) -> None:
    engine = connect(module_database, name="test")
    async with engine.connect() as connection:  # rolled back: each case begins with nothing
        await publish(connection, app())

        found = [await outcome(connection, step["message"]) for step in case["deliveries"]]

    await engine.dispose()
    assert found == [step["outcome"] for step in case["deliveries"]]
