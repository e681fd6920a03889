"""Events of a service's outbox that no message can carry go by reference, whatever happens."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from filaviva import Client, Contract, Outbox
from filaviva.broker.apply import apply
from filaviva.broker.topology import Topology
from filaviva.events import LARGEST
from filaviva.operations import keys
from filaviva.relay import Relay
from filaviva.relaying import make_table
from filaviva.service_contents import Putting
from filaviva.service_outbox import OF_A_SERVICE
from filaviva_contracts import Envelope
from fixtures.amqp import drained
from fixtures.outbox import Taking, count, relay
from fixtures.producer import Producer
from fixtures.waiting import until

TOPOLOGY = Topology()
# What a release before made.
EARLIER = """
CREATE TABLE filaviva_outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id        text NOT NULL DEFAULT gen_random_uuid()::text
                    CHECK (octet_length(event_id) BETWEEN 1 AND 200),
    source          text NOT NULL DEFAULT '/' || current_database(),
    type            text NOT NULL,
    data            jsonb NOT NULL CHECK (octet_length(data::text) <= 60000),
    attributes      jsonb NOT NULL DEFAULT '{}',
    correlation_id  text,
    traceparent     text,
    locked_until    timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries           integer NOT NULL DEFAULT 0,
    parked_at       timestamptz,
    error           text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp()
)"""


class Written(Contract, type="book.written", version=1):
    """A book, or the beginning of one."""

    number: int
    text: str


def book(number: int, size: int = 200_000) -> Written:
    return Written(number=number, text="ü" * (size // 2))


async def add(shop: AsyncEngine, *events: Written, tenant: str | None = None) -> None:
    async with AsyncSession(shop) as session, session.begin():
        for event in events:
            Outbox(session).add(event, id=f"book-{event.number}", tenant=tenant)


async def left(shop: AsyncEngine) -> list[Any]:
    async with shop.connect() as connection:
        return list(await connection.execute(text("SELECT * FROM filaviva_outbox ORDER BY id")))


async def relayed(shop: AsyncEngine) -> dict[str, Envelope]:
    """Relay what may leave; give it by its id."""
    broker = Taking()
    await Relay(shop, broker, table=OF_A_SERVICE, lanes=0).step()
    assert all(len(message.body) <= LARGEST for message in broker.taken)
    found = [Envelope.decode(message.body) for message in broker.taken]
    return {event.id: event for event in found}


@pytest.fixture
async def client(producer: Producer) -> AsyncIterator[Client]:
    """The API as the service's relay reaches it."""
    async with Client(producer.url, producer.key, patience=0) as client:
        yield client


async def test_a_large_event_leaves_when_its_content_is_put_and_not_before(
    shop: AsyncEngine, producer: Producer, client: Client
) -> None:
    await add(shop, book(1), book(2, 100), book(3, 60_000))

    before = await relayed(shop)
    put = await Putting(shop, {"default": client}).step()
    after = await relayed(shop)

    assert (set(before), put, set(after)) == ({"book-2"}, 2, {"book-1", "book-3"})
    assert after["book-1"].dataref is not None
    kept = await producer.client.get(after["book-1"].dataref)
    assert kept.json() == json.loads(book(1).model_dump_json())
    assert await left(shop) == []


async def test_rows_of_any_language_do_so_too(shop: AsyncEngine, client: Client) -> None:
    async with shop.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO filaviva_outbox (event_id, type, data) VALUES ('1', 'a.b.v1',"
                " (SELECT jsonb_agg(n) FROM generate_series(1, 30000) AS x(n)))"
            )
        )

    await Putting(shop, {"default": client}).step()

    (event,) = (await relayed(shop)).values()
    assert event.dataref is not None


@pytest.mark.parametrize(
    ("tenant", "why"),
    [
        ("acme", "there is no API key of tenant 'acme'"),
        ("other", "the API key is of tenant 'default', expected one of 'other'"),
        ("refused", "the API key is unknown"),
    ],
)
async def test_one_that_nobody_lets_us_put_waits_for_a_person_and_keeps_no_other(
    shop: AsyncEngine, producer: Producer, client: Client, tenant: str, why: str
) -> None:
    await add(shop, book(1), tenant=tenant)
    await add(shop, book(2))
    async with Client(producer.url, "fv_x_y", patience=0) as refused:
        contents = {"default": client, "other": client, "refused": refused}
        assert await Putting(shop, contents).step() == 1

    row, _ = await left(shop)
    assert row.parked_at is not None
    assert why in row.error
    assert len(row.data["text"]) == 100_000
    assert set(await relayed(shop)) == {"book-2"}


async def test_while_the_api_is_away_it_waits_longer_and_longer(shop: AsyncEngine) -> None:
    await add(shop, book(1))
    away = httpx2.MockTransport(lambda _: httpx2.Response(503))
    client = Client("http://api", "fv_x_y", patience=0, transport=away)
    putting = Putting(shop, {"default": client})

    assert await putting.step() == 0
    assert await putting.step() == 0  # not due
    (row,) = await left(shop)
    await client.close()

    assert (row.tries, row.parked_at) == (1, None)
    assert row.put_at > row.created_at


async def test_a_relay_that_dies_between_the_two_loses_nothing(
    shop: AsyncEngine, empty_database: str, producer: Producer, vhost: str
) -> None:
    await apply(vhost, TOPOLOGY.declarations(["llm"], [("book.written.v1", "llm")]))
    other = await keys.create(
        producer.engine, name="acme", tenant="acme", scopes=["jobs:write", "jobs:read"]
    )
    await add(shop, *map(book, range(5)), tenant="acme")
    settings = {
        "FILAVIVA_CONTENTS__API": producer.url,
        "FILAVIVA_CONTENTS__KEYS": json.dumps({"acme": other.token}),
    }
    dying = await relay(
        empty_database, vhost, **settings, FILAVIVA_FAILPOINTS="contents.put=exit@2"
    )
    assert await dying.wait() == -signal.SIGKILL
    assert await count(shop) == 5

    async with shop.begin() as connection:  # its time has run out
        await connection.execute(
            text("UPDATE filaviva_outbox SET put_at = now() WHERE put_at IS NOT NULL")
        )
    running = await relay(empty_database, vhost, **settings)

    async def all_gone() -> bool:
        return await count(shop) == 0

    await until(all_gone, seconds=30)
    running.terminate()
    assert await running.wait() == 0
    events = [Envelope.decode(bytes(m.body)) for m in await drained(vhost, TOPOLOGY.work("llm"))]
    headers = {"Authorization": f"Bearer {other.token}"}
    found = [await producer.client.get(str(event.dataref), headers=headers) for event in events]
    assert {answer.json()["number"] for answer in found} == set(range(5))
    assert {event.id for event in events} == {f"book-{number}" for number in range(5)}


async def test_a_table_of_an_earlier_release_is_widened_with_what_is_in_it(
    shop: AsyncEngine, client: Client
) -> None:
    async with shop.begin() as connection:
        await connection.execute(text("DROP TABLE filaviva_outbox"))
        await connection.execute(text(EARLIER))
    await add(shop, book(1, 100))
    with pytest.raises(DBAPIError, match="data_check"):
        await add(shop, book(2))

    assert await make_table(shop, asyncio.Event())
    assert await make_table(shop, asyncio.Event())

    await add(shop, book(2))
    await Putting(shop, {"default": client}).step()
    assert set(await relayed(shop)) == {"book-1", "book-2"}


async def test_where_it_may_not_be_widened_small_events_leave_as_before(
    shop: AsyncEngine,
) -> None:
    async with shop.begin() as connection:
        await connection.execute(text("DROP TABLE filaviva_outbox"))
        await connection.execute(text(EARLIER))
        await connection.execute(text("GRANT ALL ON filaviva_outbox TO pg_monitor"))
        await connection.execute(
            text(f'ALTER DATABASE "{shop.url.database}" SET role = pg_monitor')
        )
    await shop.dispose()  # from the next connection on somebody else's table

    assert not await make_table(shop, asyncio.Event())

    await add(shop, book(1, 100))
    assert set(await relayed(shop)) == {"book-1"}
