"""From a committed row to a confirmed message, whatever happens in between."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import outbox
from filaviva.broker.apply import apply
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.database import connect, tables
from filaviva.outbox import NewMessage, OutboxRow
from filaviva.relay import BatchRelayed, Fact, Relay, RowParked
from filaviva_contracts.envelope import Envelope
from fixtures.amqp import Proxy, channel, drained, ready
from fixtures.waiting import until

TOPOLOGY = Topology()
QUEUE = TOPOLOGY.work("llm")
MESSAGE = NewMessage(
    exchange=TOPOLOGY.jobs,
    routing_key="llm",
    message_id="1:1:1",
    type="filaviva.wakeup.v1",
    data='{"jobId": "1", "amount": 0.10}',
    correlation_id="correlation",
    traceparent="00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
)


class Station:
    """A relay with its database and its broker."""

    def __init__(self, engine: AsyncEngine, url: str, **options: Any) -> None:
        self.engine = engine
        self.url = url
        self.facts: list[Fact] = []
        self.publisher = Publisher(url, confirm_timeout=2)
        self.relay = Relay(engine, self.publisher, listener=self.facts.append, **options)

    async def commit(self, *messages: NewMessage) -> list[OutboxRow]:
        async with self.engine.begin() as connection:
            return await outbox.add(connection, messages)

    async def forget(self, *messages: NewMessage) -> list[OutboxRow]:
        """Commit as a process does that dies before it relays: long ago."""
        rows = await self.commit(*messages)
        await self.execute("UPDATE filaviva.outbox SET locked_until = now() - interval '1 second'")
        return rows

    async def execute(self, statement: str) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(text(statement))

    async def rows(self) -> list[Any]:
        async with self.engine.begin() as connection:
            return list(await connection.execute(select(tables.outbox).order_by("id")))

    async def empty(self) -> bool:
        return await self.rows() == []

    async def locked_seconds(self) -> float:
        async with self.engine.begin() as connection:
            return float(
                await connection.scalar(
                    text(
                        "SELECT extract(epoch FROM max(locked_until) - clock_timestamp())"
                        " FROM filaviva.outbox"
                    )
                )
                or 0
            )


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    engine = connect(database, name="test", size=8)
    yield engine
    await engine.dispose()


@pytest.fixture
async def station(engine: AsyncEngine, vhost: str) -> AsyncIterator[Station]:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    station = Station(engine, vhost)
    yield station
    await station.publisher.close()


def many(count: int, **changes: Any) -> Sequence[NewMessage]:
    return [replace(MESSAGE, message_id=f"{number}:1:1", **changes) for number in range(count)]


async def running(station: Station, stop: asyncio.Event) -> asyncio.Task[None]:
    return asyncio.create_task(station.relay.run(stop))


async def test_what_nobody_hands_over_leaves_at_once_when_somebody_hurries(
    engine: AsyncEngine, vhost: str
) -> None:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    station = Station(engine, vhost, pause=timedelta(minutes=10))
    stop = asyncio.Event()
    running = asyncio.create_task(station.relay.run(stop))
    await until(lambda: station.publisher.connected)
    await station.forget(replace(MESSAGE, message_id="1"), replace(MESSAGE, message_id="2"))

    station.relay.hurry()

    await until(station.empty, seconds=5)
    stop.set()
    await running
    assert await ready(vhost, QUEUE) == 2
    await station.publisher.close()


async def test_the_row_becomes_an_event_with_its_properties_mirrored(station: Station) -> None:
    await station.forget(MESSAGE)

    assert await station.relay.step() == 1

    [message] = await drained(station.url, QUEUE)
    event = Envelope.decode(message.body, message.header.properties.content_type, {})
    assert (event.id, event.type, event.source) == ("1:1:1", "filaviva.wakeup.v1", "filaviva")
    assert event.data == '{"jobId": "1", "amount": 0.10}'
    assert (event.correlationid, event.traceparent) == ("correlation", MESSAGE.traceparent)
    properties = message.header.properties
    assert properties.message_id == "1:1:1"
    assert properties.message_type == "filaviva.wakeup.v1"
    assert properties.correlation_id == "correlation"
    assert properties.delivery_mode == 2
    assert properties.headers["traceparent"] == MESSAGE.traceparent
    assert abs(datetime.now(UTC) - properties.timestamp) < timedelta(minutes=1)


async def test_an_event_has_its_tracestate_in_itself_and_beside_the_header(
    station: Station,
) -> None:
    await station.forget(replace(MESSAGE, attributes='{"source": "/s", "tracestate": "rojo=1"}'))

    assert await station.relay.step() == 1

    [message] = await drained(station.url, QUEUE)
    event = Envelope.decode(message.body, message.header.properties.content_type, {})
    assert event.extensions["tracestate"] == "rojo=1"
    headers = message.header.properties.headers
    assert (headers["traceparent"], headers["tracestate"]) == (MESSAGE.traceparent, "rojo=1")


async def test_a_replayed_event_keeps_its_id_under_a_new_message_id(station: Station) -> None:
    await station.forget(replace(MESSAGE, event_id="event-7"))

    await station.relay.step()

    [message] = await drained(station.url, QUEUE)
    assert Envelope.decode(message.body, None, {}).id == "event-7"
    assert message.header.properties.message_id == "1:1:1"


async def test_the_sweep_publishes_what_a_crash_left_and_then_deletes_it(station: Station) -> None:
    await station.forget(*many(1200))

    assert [await station.relay.step() for _ in range(4)] == [500, 500, 200, 0]

    assert await station.empty()
    assert await ready(station.url, QUEUE) == 1200


async def test_the_sweep_leaves_alone_what_its_committer_is_publishing(station: Station) -> None:
    await station.commit(MESSAGE)

    assert await station.relay.step() == 0

    assert len(await station.rows()) == 1


async def test_what_is_handed_over_leaves_at_once(station: Station) -> None:
    stop = asyncio.Event()
    task = await running(station, stop)

    station.relay.hand_over(await station.commit(*many(1000)))

    await until(station.empty)
    assert await ready(station.url, QUEUE) == 1000
    stop.set()
    await task


async def test_two_sweeps_at_once_never_take_the_same_row(
    station: Station, engine: AsyncEngine
) -> None:
    await station.forget(*many(2000))
    other = Station(engine, station.url)

    taken = await asyncio.gather(*(s.relay.step() for s in (station, other) for _ in range(4)))

    assert sum(taken) == 2000
    assert await ready(station.url, QUEUE) == 2000
    await other.publisher.close()


async def test_no_transaction_is_open_while_the_confirms_are_awaited(
    engine: AsyncEngine, vhost: str
) -> None:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    async with Proxy(vhost) as proxy:
        station = Station(engine, proxy.url)
        await station.publisher.connect()
        await station.forget(*many(10))
        proxy.silence()
        sweep = asyncio.create_task(station.relay.step())
        await until(lambda: not station.publisher.healthy)  # it has waited for its confirms

        async with engine.begin() as connection:
            busy = await connection.scalar(
                text(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND state LIKE 'idle in transaction%'"
                )
            )

        assert busy == 0
        proxy.resume()
        await sweep
        await station.publisher.close()


async def test_one_unroutable_row_parks_and_does_not_block_its_batch(station: Station) -> None:
    messages = list(many(100))
    messages[50] = replace(messages[50], routing_key="gone")
    await station.forget(*messages)

    assert await station.relay.step() == 99

    [row] = await station.rows()
    assert row.routing_key == "gone"
    assert row.parked_at is not None
    assert "'gone'" in row.error
    assert 50 < await station.locked_seconds() <= 60
    parked = [fact for fact in station.facts if isinstance(fact, RowParked)]
    assert [(fact.kind, fact.row.id) for fact in parked] == [("unroutable", row.id)]


async def test_a_parked_row_is_tried_again_and_leaves_when_it_can(station: Station) -> None:
    await station.forget(replace(MESSAGE, routing_key="later"))
    await station.relay.step()
    await apply(station.url, TOPOLOGY.declarations(["llm", "later"]))
    await station.execute("UPDATE filaviva.outbox SET locked_until = now()")  # the minute is over

    assert await station.relay.step() == 1

    assert await station.empty()
    assert await ready(station.url, TOPOLOGY.work("later")) == 1


async def test_a_row_the_broker_does_not_take_parks_alone(station: Station) -> None:
    messages = list(many(20))
    messages[4] = replace(messages[4], routing_key="x" * 300)
    await station.forget(*messages)

    assert await station.relay.step() == 19

    [row] = await station.rows()
    assert row.parked_at is not None
    assert row.tries == 1


async def test_a_missing_exchange_is_tried_again_soon_and_is_no_parking_reason(
    station: Station,
) -> None:
    async with channel(station.url) as other:
        await other.exchange_delete(TOPOLOGY.jobs)
    await station.forget(*many(20), replace(MESSAGE, exchange=TOPOLOGY.dead))

    assert await station.relay.step() == 1

    assert all(row.parked_at is None for row in await station.rows())
    assert 0 < await station.locked_seconds() <= 2


async def test_an_unconfirmed_batch_keeps_its_rows_and_leaves_once_the_broker_answers(
    engine: AsyncEngine, vhost: str
) -> None:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    stop = asyncio.Event()
    async with Proxy(vhost) as proxy:
        station = Station(engine, proxy.url, pause=timedelta(seconds=0.2))
        await station.publisher.connect()
        proxy.silence()
        task = await running(station, stop)

        station.relay.hand_over(await station.commit(*many(10)))

        await until(lambda: any(_unknown(fact) for fact in station.facts))
        assert len(await station.rows()) == 10
        assert not station.relay.healthy
        proxy.resume()
        await until(station.empty, seconds=40)
        assert station.relay.healthy
        found = {m.header.properties.message_id for m in await drained(vhost, QUEUE)}
        assert found == {message.message_id for message in many(10)}
        stop.set()
        await task
        await station.publisher.close()


def _unknown(fact: Fact) -> bool:
    return isinstance(fact, BatchRelayed) and fact.unknown > 0


async def test_with_the_broker_down_rows_stay_and_the_sweep_touches_none(
    engine: AsyncEngine,
) -> None:
    station = Station(engine, "amqp://nobody@127.0.0.1:1/")
    await station.forget(MESSAGE)
    before = await station.rows()

    assert await station.relay.step() == 0

    assert await station.rows() == before
    assert not station.relay.healthy


async def test_a_row_with_a_pause_goes_through_the_cascade_and_is_not_early(
    station: Station,
) -> None:
    async with station.engine.begin() as connection:
        now = await connection.scalar(text("SELECT clock_timestamp()"))
    due = now + timedelta(seconds=1)
    await station.forget(replace(MESSAGE, not_before=due))

    assert await station.relay.step() == 1

    assert await ready(station.url, QUEUE) == 0
    await until(lambda: ready(station.url, QUEUE))
    async with station.engine.begin() as connection:
        assert await connection.scalar(text("SELECT clock_timestamp()")) >= due


async def test_a_pause_that_is_over_goes_straight_to_the_queue(station: Station) -> None:
    await station.forget(replace(MESSAGE, not_before=datetime.now(UTC) - timedelta(hours=1)))

    await station.relay.step()

    assert await ready(station.url, QUEUE) == 1


async def test_a_lifecycle_row_that_nobody_wants_is_deleted(station: Station) -> None:
    told = replace(MESSAGE, exchange=TOPOLOGY.lifecycle, routing_key="job.done", mandatory=False)
    await station.forget(told)

    assert await station.relay.step() == 1

    assert await station.empty()


async def test_what_was_handed_over_before_the_stop_still_leaves(station: Station) -> None:
    stop = asyncio.Event()
    task = await running(station, stop)

    station.relay.hand_over(await station.commit(*many(2000)))
    stop.set()
    await task

    assert await station.empty()
    assert station.relay.pending == 0


async def test_what_is_too_much_to_hold_is_left_to_the_sweep(station: Station) -> None:
    rows = await station.commit(MESSAGE)

    station.relay.hand_over(rows * 20_000)
    station.relay.hand_over(rows)

    assert station.relay.pending == 20_000
