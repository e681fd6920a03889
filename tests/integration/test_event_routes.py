"""Setup brings events to the queues of their handlers, and takes away what nobody handles."""

import json
from pathlib import Path
from typing import Any

from filaviva import App, Contract
from filaviva.broker.drift import verify
from filaviva.broker.topology import Binding, Topology
from filaviva.database import connect
from filaviva.operations.routes import Routes, routes
from filaviva.operations.setup import SetUp, setup
from fixtures.amqp import channel
from fixtures.broker import Broker

TOPOLOGY = Topology()


class Issued(Contract, type="invoice.issued", version=1):
    number: int


class Sent(Contract, type="invoice.sent", version=3):
    number: int


async def nothing(_event: Any, _ctx: Any) -> None:
    pass


def app(name: str = "shop", *, issued: str | None = None, sent: str | None = None) -> App:
    """An app that handles these events on these queues."""
    made = App(name)
    if issued is not None:
        made.on_event(Issued, queue=issued, name=f"{name}-issued")(nothing)
    if sent is not None:
        made.on_event(Sent, queue=sent, name=f"{name}-sent")(nothing)
    return made


def bound(queue: str, key: str = "invoice.issued.v1") -> Binding:
    return Binding("filaviva.events", f"filaviva.work.{queue}", key)


async def known(database: str) -> Routes:
    engine = connect(database, name="test", size=1)
    try:
        async with engine.connect() as connection:
            return await routes(connection)
    finally:
        await engine.dispose()


async def drift(database: str, vhost: str, broker: Broker) -> list[str]:
    declarations = (await known(database)).declarations()
    name = vhost.rpartition("/")[2]
    return [str(one) for one in await verify(broker.management_url, name, declarations)]


async def test_events_are_bound_moved_and_let_go_with_their_handlers(
    database: str, vhost: str, broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "definitions.json"

    async def set_up(what: App) -> SetUp:
        return await setup(database_url=database, broker_url=vhost, app=what, definitions_file=file)

    def exported() -> set[str]:
        bindings = json.loads(file.read_text())["bindings"]
        events = [each for each in bindings if each["source"] == "filaviva.events"]
        return {f"{each['routing_key']} -> {each['destination']}" for each in events}

    first = await set_up(app(issued="llm", sent="mail"))
    assert await drift(database, vhost, broker) == []
    assert exported() == {
        "invoice.issued.v1 -> filaviva.work.llm", "invoice.sent.v3 -> filaviva.work.mail"
    }  # fmt: skip
    assert {*first.published.added} == {
        "invoice.issued v1", "invoice.issued:shop-issued v1",
        "invoice.sent v3", "invoice.sent:shop-sent v3",
    }  # fmt: skip

    moved = await set_up(app(issued="mail"))
    assert await drift(database, vhost, broker) == []
    assert exported() == {"invoice.issued.v1 -> filaviva.work.mail"}
    assert {"mail"} == {*moved.queues} & {"llm", "mail"}
    assert {*moved.published.deprecated} == {"invoice.sent v3", "invoice.sent:shop-sent v3"}


async def test_a_stale_binding_is_told_and_those_of_others_are_not(
    database: str, vhost: str, broker: Broker
) -> None:
    await setup(database_url=database, broker_url=vhost, app=app(issued="llm"))
    async with channel(vhost) as other:
        await other.queue_bind("filaviva.work.llm", "filaviva.events", "invoice.old.v1")
        await other.queue_declare("theirs")
        await other.queue_bind("theirs", "filaviva.events", "#")

    assert await drift(database, vhost, broker) == [
        "binding filaviva.events -> filaviva.work.llm: found 'invoice.old.v1', expected nothing"
    ]


async def test_an_event_of_several_apps_stays_until_the_last_of_them_lets_it_go(
    database: str, vhost: str
) -> None:
    async def set_up(what: App) -> SetUp:
        return await setup(database_url=database, broker_url=vhost, app=what)

    await set_up(app("books", issued="llm"))
    await set_up(app("audit", issued="audit"))

    without = await set_up(app("books", sent="llm"))
    assert without.published.deprecated == ("invoice.issued:books-issued v1",)
    assert (await known(database)).events == {
        ("invoice.issued.v1", "audit"), ("invoice.sent.v3", "llm")
    }  # fmt: skip

    last = await set_up(app("audit", sent="audit"))
    assert last.published.deprecated == ("invoice.issued:audit-issued v1",)
    assert await set_up(app("books", issued="llm"))


def test_what_an_app_will_need_is_there_before_it_is_published() -> None:
    wanted = Routes(gone=frozenset({("invoice.issued.v1", "llm")})).with_app(app(issued="llm"))

    assert bound("llm") in wanted.declarations().bindings
    assert wanted.gone == frozenset()


def test_a_handler_that_moved_leaves_its_old_queue() -> None:
    before = Routes().with_app(app(issued="llm"))
    after = Routes().with_app(app(issued="mail")).after(before)

    assert bound("llm") in after.declarations(TOPOLOGY).gone
