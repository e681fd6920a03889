"""Which versions are on their way, and whether a release may be deployed over them."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import App, Contract, Publisher
from filaviva.broker.apply import apply
from filaviva.broker.depths import QueueDepths
from filaviva.broker.topology import Topology
from filaviva.operations.in_flight import InFlight, in_flight, unreadable
from filaviva.operations.unread import Suspect, suspects, unread
from filaviva.publishing import publish
from fixtures.amqp import ready
from fixtures.command_line import CommandLine
from fixtures.dying import Morgue, Sent, died, event

TOPOLOGY = Topology()
V2 = """'[{"type"\\: "invoice.extract", "min"\\: 2, "max"\\: 2}]'"""


class First(Contract, type="invoice.extract", version=1):
    """What is on its way."""


class Second(Contract, type="invoice.extract", version=2):
    """What comes."""


class Issued1(Contract, type="invoice.issued", version=1):
    """An event, as it was."""


class Issued(Contract, type="invoice.issued", version=2):
    """An event."""


async def read(_job: Any, _context: Any) -> None:
    """Do nothing."""


def release(*contracts: type[Contract], upcast: bool = False, name: str = "shop") -> App:
    app = App(name)
    for contract in contracts:
        app.handler(contract, queue="llm")(read)
    if upcast:
        app.upcaster(First, to=2)(lambda data: data)
    return app


async def found(engine: AsyncEngine, app: App | None) -> list[InFlight]:
    async with engine.connect() as connection:
        return await in_flight(connection, app)


@pytest.fixture
async def traffic(morgue: Morgue) -> Morgue:
    """Version 1 in every place where it may be."""
    async with morgue.engine.begin() as connection:
        await publish(connection, release(First))
    await morgue.queued()
    await morgue.queued(not_before="clock_timestamp() + interval '1 hour'")
    await morgue.queued(parked_reason="'unsupported_version'")
    await morgue.running()
    await morgue.letter_of()
    await morgue.all(
        "INSERT INTO filaviva.schedules (id, tenant, name, cron, time_zone, missed, enabled, type,"
        " version, data, priority, labels, fingerprint, submitted_by) VALUES (gen_random_uuid(),"
        " 'default', 'nightly', '0 0 * * *', 'UTC', 'once', true, 'invoice.extract', 1, '{}', 4,"
        " '{}', '', 'ana')"
    )
    await morgue.queued(state="'succeeded'")
    return morgue


async def test_every_place_is_looked_at_and_what_has_ended_is_not(traffic: Morgue) -> None:
    seen = await found(traffic.engine, release(First))

    assert {one.place: one.messages for one in seen} == {
        "dead letter": 1,
        "parked": 1,
        "pause": 1,
        "queue": 1,
        "running": 1,
        "schedule": 1,
    }
    assert {(one.type, one.version, one.readable) for one in seen} == {
        ("invoice.extract", 1, "yes")
    }


@pytest.mark.parametrize(
    ("app", "readable"),
    [
        (release(First, Second), "yes"),
        (release(Second, upcast=True), "upcast"),
        (release(Second), "no"),
        (release(name="post"), "other app"),
    ],
)
async def test_a_release_reads_them_upcasts_them_or_does_not(
    traffic: Morgue, app: App, readable: str
) -> None:
    seen = await found(traffic.engine, app)

    assert {one.readable for one in seen} == {readable}
    assert len(unreadable(seen)) == (6 if readable == "no" else 0)


async def test_without_a_release_the_running_workers_are_asked(traffic: Morgue) -> None:
    await traffic.worker(queues="ARRAY['llm']", reads=V2)
    before = await found(traffic.engine, None)

    await traffic.worker(id="'w2'", queues="ARRAY['llm']", reads=V2.replace("2,", "1,", 1))
    after = await found(traffic.engine, None)

    assert {one.readable for one in before} == {"no"}
    assert {one.readable for one in after} == {"yes"}


async def test_an_event_in_a_letter_has_to_be_read_by_all_its_handlers(morgue: Morgue) -> None:
    app = App("shop")
    for name in ("thank", "archive"):
        app.on_event(Issued, queue="llm", name=name)(read)
    async with morgue.engine.begin() as connection:
        await publish(connection, app)
    morgue.contracts["invoice.issued"] = (2,)
    await morgue.file(
        Sent(body=event("invoice.issued.v2"), headers=died("delivery_limit")),
        Sent(body=event("invoice.issued.v1"), headers=died("delivery_limit")),
        Sent(body=event("who.knows.v1"), headers=died("rejected")),
    )

    seen = await found(morgue.engine, app)

    assert [(one.type, one.version, one.readable) for one in seen] == [
        ("invoice.issued", 1, "no"),
        ("invoice.issued", 2, "yes"),
        ("who.knows", 1, "unknown"),
    ]


async def test_an_event_in_a_letter_is_only_the_business_of_who_has_handled_its_version(
    morgue: Morgue,
) -> None:
    old, new = App("old"), App("new")
    old.on_event(Issued1, queue="llm", name="thank")(read)
    new.on_event(Issued, queue="mail", name="stamp")(read)
    for app in (old, new):
        await set_up(morgue.engine, app)
    morgue.contracts["invoice.issued"] = (1, 2)
    await morgue.file(Sent(body=event("invoice.issued.v1"), headers=died("delivery_limit")))

    (of_new,) = await found(morgue.engine, new)
    (of_old,) = await found(morgue.engine, old)
    (gone,) = await found(morgue.engine, App("old"))

    assert (of_new.readable, of_old.readable, gone.readable) == ("other app", "yes", "no")
    await set_up(morgue.engine, App("old"))  # now nobody reads it: whoever has the event is asked
    assert {one.readable for one in await found(morgue.engine, new)} == {"no"}


async def test_the_gate_closes_with_exit_code_4(traffic: Morgue, database: str) -> None:
    cli = CommandLine(FILAVIVA_POSTGRES__URL=database)

    def gate(app: str, *words: str) -> Any:
        return cli("contracts", "in-flight", "--app", f"integration.test_in_flight:{app}", *words)

    open_, shut = await asyncio.gather(
        asyncio.to_thread(gate, "OPEN", "--json"), asyncio.to_thread(gate, "SHUT")
    )

    assert open_.code == 0
    assert {item["readable"] for item in open_.json["items"]} == {"upcast"}
    assert shut.code == 4
    assert "app 'shop' does not read invoice.extract v1: 6 message(s)" in shut.err
    assert traffic.contracts


async def set_up(engine: AsyncEngine, app: App) -> None:
    async with engine.begin() as connection:
        await publish(connection, app)


async def sent(vhost: str, *versions: int) -> None:
    """Publish events that no worker reads: none runs."""
    async with Publisher(vhost, source="/shop") as publisher:
        for version in versions:
            await publisher.publish(ISSUED[version]())


@pytest.mark.parametrize("published", [(), (1,), (2,)])
async def test_what_no_worker_has_read_shuts_the_gate_where_it_may_be_of_a_version_that_goes(
    engine: AsyncEngine, vhost: str, published: tuple[int, ...]
) -> None:
    # What is in a queue cannot be looked into without changing it.
    await apply(
        vhost, TOPOLOGY.declarations(["mail"], [(f"invoice.issued.v{n}", "mail") for n in ISSUED])
    )
    await set_up(engine, EVENTS)
    await sent(vhost, *published)
    depths = QueueDepths(vhost)
    async with engine.connect() as connection:
        none = await suspects(connection, EVENTS)
        suspected = await suspects(connection, EVENTS_2)

    found = await unread(suspected, depths, seconds=0)
    await depths.close()

    assert none == []
    assert [(one.type, one.version, one.queue, one.messages) for one in found] == [
        ("invoice.issued", 1, "filaviva.work.mail", 1) for _ in published
    ]
    assert await ready(vhost, TOPOLOGY.work("mail")) == len(published)


async def test_where_a_handler_was_is_looked_at_too(engine: AsyncEngine) -> None:
    await set_up(engine, EVENTS)
    moved = App("shop")
    moved.on_event(Issued1, queue="slow", name="thank")(read)
    moved.on_event(Issued, queue="slow", name="thank")(read)
    await set_up(engine, moved)

    async with engine.connect() as connection:
        (suspected,) = await suspects(connection, EVENTS_2)

    assert suspected.queues == (
        "filaviva.dead.letters", "filaviva.unroutable", "filaviva.work.mail", "filaviva.work.slow"
    )  # fmt: skip


async def test_what_another_app_s_handlers_read_is_not_this_one_s_business(
    engine: AsyncEngine,
) -> None:
    other = App("post")
    other.on_event(Issued1, queue="post", name="stamp")(read)
    await set_up(engine, other)
    await set_up(engine, EVENTS_2)

    async with engine.connect() as connection:
        assert await suspects(connection, EVENTS_2) == []


class Emptying:
    """Queues that somebody reads, each a little at a time."""

    def __init__(self, **counts: list[int]) -> None:
        self.counts = counts

    async def waiting(self, names: Collection[str]) -> dict[str, int]:
        return {name: self.counts[name].pop(0) for name in names if name in self.counts}


async def test_a_queue_that_was_empty_once_has_been_read() -> None:
    queues = Emptying(busy=[7, 3, 0, 9], idle=[0, 9], gone=[])
    del queues.counts["gone"]
    suspected = Suspect("invoice.issued", 1, "shop", ("busy", "idle", "gone"))

    assert await unread([suspected], queues, seconds=30) == []
    assert queues.counts == {"busy": [9], "idle": [9]}


async def test_the_gate_asks_the_broker_only_where_it_has_to(
    engine: AsyncEngine, database: str, vhost: str
) -> None:
    await apply(vhost, TOPOLOGY.declarations(["mail"], [("invoice.issued.v1", "mail")]))
    await set_up(engine, EVENTS)
    await sent(vhost, 1)

    def gate(app: str, *words: str, **environment: str) -> Any:
        cli = CommandLine(FILAVIVA_POSTGRES__URL=database, **environment)
        return cli("contracts", "in-flight", "--app", f"integration.test_in_flight:{app}", *words)

    same, unasked, blind, shut = await asyncio.gather(
        asyncio.to_thread(gate, "EVENTS"),
        asyncio.to_thread(gate, "EVENTS_2", "--without-broker"),
        asyncio.to_thread(gate, "EVENTS_2"),
        asyncio.to_thread(gate, "EVENTS_2", "--wait", "0.1", FILAVIVA_BROKER__URL=vhost),
    )

    assert (same.code, unasked.code, shut.code) == (0, 0, 4)
    assert blind.code == 2
    assert "FILAVIVA_BROKER__URL" in blind.err
    assert "--without-broker" in blind.err
    assert "invoice.issued v1: among 1 on filaviva.work.mail there may be some" in shut.err


ISSUED: dict[int, type[Contract]] = {1: Issued1, 2: Issued}
EVENTS, EVENTS_2 = App("shop"), App("shop")
EVENTS.on_event(Issued1, queue="mail", name="thank")(read)
EVENTS.on_event(Issued, queue="mail", name="thank")(read)
EVENTS_2.on_event(Issued, queue="mail", name="thank")(read)
OPEN, SHUT = release(Second, upcast=True), release(Second)
