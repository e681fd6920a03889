"""What the registry says of versions that are read side by side, upcast, or on their way out."""

from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest
from pydantic import ConfigDict
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import App, Context, Policy
from filaviva.broker.topology import Topology
from filaviva.database import connect
from filaviva.operations.routes import Routes, routes
from filaviva.publishing import Published, publish
from filaviva.registry import Registry
from filaviva_contracts import Contract

LAST_DAY = date(2027, 3, 31)


class Paid(Contract, type="order.paid", version=1):
    order: int


class PaidInFull(Contract, type="order.paid", version=2):
    order: str


class Sent(Contract, type="order.sent", version=1):
    """An event."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"order": 7}]})
    order: int


class SentAgain(Contract, type="order.sent", version=2):
    """The event, as it is published now."""

    order: str


async def count(_job: Any, _context: Context) -> dict[str, int]:
    raise NotImplementedError


def say(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "order": str(data["order"])}


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    engine = connect(database, name="test", size=2)
    yield engine
    await engine.dispose()


async def published(engine: AsyncEngine, app: App) -> tuple[Published, Registry]:
    async with engine.begin() as connection:
        done = await publish(connection, app)
    registry = Registry(engine)
    await registry.refresh()
    return done, registry


async def test_an_upcast_version_stays_as_it_was_published_and_runs_as_its_reader_does(
    engine: AsyncEngine,
) -> None:
    old, new = App("shop"), App("shop")
    old.handler(Paid, queue="slow", policy=Policy(max_attempts=3))(count)
    new.handler(PaidInFull, queue="llm", policy=Policy(max_attempts=9))(count)
    new.upcaster("order.paid", 1, to=2)(say)
    await published(engine, old)

    done, registry = await published(engine, new)

    first = registry.find("order.paid", 1)
    assert first is not None
    assert (done.added, done.changed) == (("order.paid v2",), ("order.paid v1",))
    assert (first.queue, first.policy.max_attempts, first.read_as) == ("llm", 9, 2)
    assert not first.deprecated
    assert first.schema["properties"]["order"]["type"] == "integer"
    assert registry.find("order.paid").version == 2  # type: ignore[union-attr]
    assert (await published(engine, new))[0] == Published()


async def test_where_it_was_never_published_its_contract_is_needed(engine: AsyncEngine) -> None:
    by_name, with_contract = App("shop"), App("shop")
    for app in (by_name, with_contract):
        app.handler(PaidInFull)(count)
    by_name.upcaster("order.paid", 1, to=2)(say)
    with_contract.upcaster(Paid, to=2)(say)

    unknown, without = await published(engine, by_name)
    _, registry = await published(engine, with_contract)

    assert (unknown.unknown, without.versions("order.paid")) == (("order.paid v1",), (2,))
    assert registry.versions("order.paid") == (1, 2)


async def test_an_old_version_of_an_event_still_comes_to_its_handlers(engine: AsyncEngine) -> None:
    app = App("shop")
    app.on_event(SentAgain, queue="mail", name="thank")(count)
    app.upcaster(Sent, to=2)(say)

    _, registry = await published(engine, app)

    keys = {("order.sent.v1", "mail"), ("order.sent.v2", "mail")}
    assert registry.handles("order.sent", 1)
    assert registry.versions("order.sent") == registry.versions("order.sent:thank") == (1, 2)
    assert registry.find("order.sent", 1).examples == [{"order": 7}]  # type: ignore[union-attr]
    assert Routes().with_app(app).events == keys
    async with engine.connect() as connection:
        found = await routes(connection)
    assert found.events == keys
    assert found.declarations(Topology())


async def test_a_version_on_its_way_out_is_read_but_no_longer_the_default(
    engine: AsyncEngine,
) -> None:
    app = App("shop")
    app.handler(Paid)(count)
    app.handler(PaidInFull)(count)
    app.deprecate(PaidInFull, sunset=LAST_DAY)

    _, registry = await published(engine, app)
    since = registry.find("order.paid", 2).announced_at  # type: ignore[union-attr]
    app.deprecate(PaidInFull, sunset=date(2028, 1, 1))
    _, later = await published(engine, app)

    found = later.find("order.paid", 2)
    assert found is not None
    assert (found.sunset, found.announced_at) == (date(2028, 1, 1), since)
    assert since is not None
    assert not found.deprecated
    assert later.find("order.paid").version == 1  # type: ignore[union-attr]
