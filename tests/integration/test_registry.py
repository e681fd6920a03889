"""What setup publishes is what the generic services know."""

import asyncio
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import App, ConfigurationError, Context, Policy
from filaviva.database import connect
from filaviva.publishing import Published, publish
from filaviva.registry import Registry
from filaviva_contracts import Contract


class Paid(Contract, type="order.paid", version=1):
    order: int


class PaidAgain(Contract, type="order.paid", version=2):
    order: int
    total: Decimal = Decimal(0)


class Sent(Contract, type="order.sent", version=1):
    order: int


async def anything(_job: Any, _context: Context) -> dict[str, int]:
    raise NotImplementedError


def app(*contracts: type[Contract], name: str = "shop", queue: str = "llm", **policy: Any) -> App:
    made = App(name)
    for contract in contracts:
        made.handler(contract, queue=queue, policy=Policy(**policy))(anything)
    return made


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    engine = connect(database, name="test", size=5)
    yield engine
    await engine.dispose()


async def published(engine: AsyncEngine, what: App) -> Published:
    async with engine.begin() as connection:
        return await publish(connection, what)


async def refreshed(engine: AsyncEngine) -> Registry:
    registry = Registry(engine)
    await registry.refresh()
    return registry


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not fact():  # noqa: ASYNC110 - a test looks from outside
            await asyncio.sleep(0.01)


async def test_a_published_contract_is_found_with_its_queue_policy_and_schema(
    engine: AsyncEngine,
) -> None:
    done = await published(engine, app(Paid, max_attempts=3, base=0.5, timeout=9))

    registry = await refreshed(engine)
    found = registry.find("order.paid", 1)

    assert done == Published(added=("order.paid v1",))
    assert found is not None
    assert (found.app, found.queue, found.deprecated) == ("shop", "llm", False)
    assert (found.policy.max_attempts, found.policy.base, found.policy.timeout) == (3, 0.5, 9)
    assert found.validate({"order": 1}) == []
    assert [flaw.pointer for flaw in found.validate({"order": "x", "y": 1})] == ["/order", "/y"]
    assert found.result_schema is not None
    assert found.result_schema["additionalProperties"] == {"type": "integer"}


async def test_without_a_version_the_newest_is_found(engine: AsyncEngine) -> None:
    await published(engine, app(Paid, PaidAgain))

    registry = await refreshed(engine)

    assert registry.find("order.paid").version == 2  # type: ignore[union-attr]
    assert registry.find("order.paid", 3) is None
    assert registry.find("order.lost") is None
    assert (registry.types(), registry.versions("order.paid")) == (("order.paid",), (1, 2))


async def test_publishing_the_same_again_changes_nothing_and_says_nothing(
    engine: AsyncEngine,
) -> None:
    await published(engine, app(Paid, PaidAgain))
    before = await _stamps(engine)

    assert await published(engine, app(Paid, PaidAgain)) == Published()
    assert await _stamps(engine) == before


async def test_a_contract_without_a_handler_is_deprecated_and_comes_back(
    engine: AsyncEngine,
) -> None:
    await published(engine, app(Paid, PaidAgain))

    gone = await published(engine, app(Paid))
    without = await refreshed(engine)
    back = await published(engine, app(Paid, PaidAgain, queue="other"))

    assert gone == Published(deprecated=("order.paid v2",))
    assert without.find("order.paid").version == 1  # type: ignore[union-attr]
    assert without.find("order.paid", 2).deprecated  # type: ignore[union-attr]
    assert back == Published(changed=("order.paid v1", "order.paid v2"))


async def test_an_app_touches_only_its_own_contracts(engine: AsyncEngine) -> None:
    await published(engine, app(Paid))

    await published(engine, app(Sent, name="post"))
    registry = await refreshed(engine)

    assert [(each.type, each.app, each.deprecated) for each in registry.all()] == [
        ("order.paid", "shop", False),
        ("order.sent", "post", False),
    ]


async def test_a_contract_of_another_app_is_refused_and_nothing_is_published(
    engine: AsyncEngine,
) -> None:
    await published(engine, app(Paid))

    with pytest.raises(ConfigurationError, match=r"order\.paid v1 \(of app 'shop'\)"):
        await published(engine, app(Paid, Sent, name="post"))

    assert (await refreshed(engine)).types() == ("order.paid",)


async def test_a_contract_that_its_app_gave_up_may_move(engine: AsyncEngine) -> None:
    await published(engine, app(Paid))
    await published(engine, app())

    moved = await published(engine, app(Paid, name="post"))

    assert moved == Published(changed=("order.paid v1",))


async def test_two_setups_at_once_do_not_both_get_a_contract(engine: AsyncEngine) -> None:
    ends = await asyncio.gather(
        *(published(engine, app(Paid, name=f"app{number}")) for number in range(4)),
        return_exceptions=True,
    )

    assert sum(isinstance(end, Published) for end in ends) == 1
    assert sum(isinstance(end, ConfigurationError) for end in ends) == 3


async def test_one_unusable_schema_does_not_take_the_others_away(engine: AsyncEngine) -> None:
    await published(engine, app(Paid, Sent))
    async with engine.begin() as connection:
        broken = (
            """UPDATE filaviva.contracts SET schema = '{"type":"no"}' WHERE type = 'order.sent'"""
        )
        await connection.execute(text(broken))

    assert (await refreshed(engine)).types() == ("order.paid",)


async def test_a_running_registry_hears_of_a_change_without_polling(engine: AsyncEngine) -> None:
    registry, stop = Registry(engine, poll=3600), asyncio.Event()
    running = asyncio.create_task(registry.run(stop))
    await published(engine, app(Paid))
    await until(lambda: registry.types() == ("order.paid",))

    await published(engine, app(Paid, Sent))

    await until(lambda: registry.types() == ("order.paid", "order.sent"))
    stop.set()
    async with asyncio.timeout(5):
        await running


async def test_a_registry_that_lost_its_connection_listens_again(engine: AsyncEngine) -> None:
    registry, stop = Registry(engine, poll=3600), asyncio.Event()
    running = asyncio.create_task(registry.run(stop))
    await published(engine, app(Paid))
    await until(lambda: registry.types() == ("order.paid",))

    await _end_listeners(engine)
    await published(engine, app(Paid, Sent))

    await until(lambda: registry.types() == ("order.paid", "order.sent"))
    stop.set()
    async with asyncio.timeout(5):
        await running


async def test_while_the_database_is_away_the_known_contracts_serve(engine: AsyncEngine) -> None:
    await published(engine, app(Paid))
    registry = await refreshed(engine)
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE filaviva.contracts RENAME TO hidden"))

    await registry.step()

    assert registry.types() == ("order.paid",)


async def _stamps(engine: AsyncEngine) -> list[Any]:
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT type, updated_at FROM filaviva.contracts"))
        return sorted(tuple(row) for row in found)


async def _end_listeners(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        ended = await connection.scalar(
            text(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
        )
    assert ended == 1
