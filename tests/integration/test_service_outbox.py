"""Events leave with a service's own transaction, whatever becomes of the relay."""

import json
import signal
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from filaviva import Contract, NotPublished, Outbox, Publisher, outbox
from filaviva.broker.apply import apply
from filaviva.broker.topology import Topology
from filaviva.relay import Relay
from filaviva.service_outbox import OF_A_SERVICE
from filaviva_contracts import Envelope
from fixtures.amqp import drained, ready
from fixtures.outbox import Taking, count, relay
from fixtures.waiting import until

TOPOLOGY = Topology()
QUEUE = TOPOLOGY.work("llm")
DECLARATIONS = TOPOLOGY.declarations(["llm"], [("order.paid.v1", "llm")])


class Paid(Contract, type="order.paid", version=1):
    order: int
    total: Decimal = Decimal("0.10")


async def test_an_event_shares_the_fate_of_its_transaction(shop: AsyncEngine) -> None:
    async with AsyncSession(shop) as session, session.begin():
        await Outbox(session).add(Paid(order=1))
        Outbox(session, source="/shop").add(Paid(order=2), id="paid-2", subject="orders/2")

    async def fails() -> None:
        async with AsyncSession(shop) as session, session.begin():
            Outbox(session).add(Paid(order=3))
            raise RuntimeError("the order could not be written")

    with pytest.raises(RuntimeError):
        await fails()

    async with shop.begin() as connection:
        found = await connection.execute(text("SELECT * FROM filaviva_outbox ORDER BY id"))
        rows = [row._asdict() for row in found]
    assert [row["data"]["order"] for row in rows] == [1, 2]
    assert rows[0]["source"] == f"/{shop.url.database}"
    assert (rows[1]["source"], rows[1]["event_id"]) == ("/shop", "paid-2")
    assert rows[1]["attributes"] == {"subject": "orders/2"}


async def test_a_tracestate_goes_along_with_its_traceparent(shop: AsyncEngine) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    async with AsyncSession(shop) as session, session.begin():
        Outbox(session).add(Paid(order=1), traceparent=trace, tracestate="rojo=1")
        Outbox(session).add(Paid(order=2), traceparent=trace, tracestate="BROKEN")
        Outbox(session).add(Paid(order=3), tracestate="rojo=1")

    statement = f"UPDATE filaviva_outbox SET tries = 0 RETURNING {OF_A_SERVICE.returning}"
    async with shop.begin() as connection:
        rows = outbox.rows(await connection.execute(text(statement)))
    found = {row.id: (row.traceparent, row.tracestate) for row in rows}
    assert [found[each] for each in sorted(found)] == [
        (trace, "rojo=1"),
        (trace, None),
        (None,) * 2,
    ]


async def test_a_blocking_session_has_an_outbox_too(shop: AsyncEngine) -> None:
    def add(session: Session) -> None:
        Outbox(session).add(Paid(order=1))
        session.commit()

    async with AsyncSession(shop) as session:
        await session.run_sync(add)

    assert await count(shop) == 1


async def test_what_could_not_be_published_is_refused_before_it_is_written(
    shop: AsyncEngine,
) -> None:
    class Named(Contract, type="order.named", version=1):
        name: str

    async with AsyncSession(shop) as session:
        with pytest.raises(ValueError, match="expected at most 262144"):
            Outbox(session).add(Named(name="x" * 270_000))
        with pytest.raises(ValueError, match=r"order\.named"):
            Outbox(session).add(Named(name="a\x00b"))


@pytest.mark.parametrize("wrong", ["[1]", '"x"', '{"time": "yesterday"}', '{"time": [1]}'])
async def test_a_row_that_is_no_event_waits_for_a_person_and_keeps_nobody(
    shop: AsyncEngine, wrong: str
) -> None:
    # Anybody who writes SQL may write one.
    async with shop.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO filaviva_outbox (event_id, type, data, attributes) VALUES"
                " ('wrong', 'order.paid.v1', '{}', CAST(:wrong AS jsonb)),"
                " ('right', 'order.paid.v1', '{}', '{}')"
            ),
            {"wrong": wrong},
        )
    broker = Taking()

    assert await Relay(shop, broker, table=OF_A_SERVICE, lanes=0).step() == 1

    assert [message.message_id for message in broker.taken] == ["right"]
    async with shop.begin() as connection:
        (left,) = await connection.execute(
            text("SELECT event_id, parked_at, error FROM filaviva_outbox")
        )
    assert left.event_id == "wrong"
    assert left.parked_at is not None
    assert left.error


async def test_a_relay_that_is_killed_loses_no_event(
    shop: AsyncEngine, empty_database: str, vhost: str
) -> None:
    await apply(vhost, DECLARATIONS)
    async with AsyncSession(shop) as session, session.begin():
        for order in range(20):
            Outbox(session).add(Paid(order=order), id=f"paid-{order}", tenant="acme")
    dying = await relay(empty_database, vhost, FILAVIVA_FAILPOINTS="relay.published=exit")
    assert await dying.wait() == -signal.SIGKILL
    assert await count(shop) == 20

    async with shop.begin() as connection:  # its lock has run out
        await connection.execute(text("UPDATE filaviva_outbox SET locked_until = now()"))
    running = await relay(empty_database, vhost)

    async def all_gone() -> bool:
        return await count(shop) == 0

    await until(all_gone, seconds=30)
    running.terminate()
    assert await running.wait() == 0
    events = [Envelope.decode(bytes(m.body)) for m in await drained(vhost, QUEUE)]
    assert {event.id for event in events} == {f"paid-{order}" for order in range(20)}
    assert {event.source for event in events} == {f"/{shop.url.database}"}
    assert {event.extensions["tenant"] for event in events} == {"acme"}
    assert json.loads(events[0].data)["total"] == "0.10"


async def test_a_publisher_returns_when_the_broker_has_the_event(vhost: str) -> None:
    await apply(vhost, DECLARATIONS)

    async with Publisher(vhost, source="/shop") as publisher:
        identity = await publisher.publish(Paid(order=1))
        await publisher.publish(Paid(order=2), id="paid-2", subject="orders/2", tenant="acme")

        async def both() -> bool:
            return await ready(vhost, QUEUE) == 2

        await until(both)
    messages: list[Any] = await drained(vhost, QUEUE)
    first, second = (Envelope.decode(bytes(message.body)) for message in messages)
    assert (first.id, first.source, first.contract) == (identity, "/shop", ("order.paid", 1))
    assert (second.id, second.subject, second.extensions) == (
        "paid-2", "orders/2", {"tenant": "acme"}
    )  # fmt: skip
    assert messages[1].header.properties.message_id == "paid-2"


async def test_a_publisher_says_under_which_id_to_publish_again(vhost: str) -> None:
    async with Publisher(vhost, source="/shop") as publisher:  # there is no exchange yet
        with pytest.raises(NotPublished) as refused:
            await publisher.publish(Paid(order=1), id="paid-1")

    assert refused.value.event_id == "paid-1"
