"""One command brings database, broker and registry to where an app needs them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, text

from filaviva import App, ConfigurationError, Context
from filaviva.database import connect, newest_revision
from filaviva.operations.setup import SetUp, setup
from filaviva_contracts import Contract
from fixtures.management import Management


class Paid(Contract, type="order.paid", version=1):
    order: int


class Sent(Contract, type="order.sent", version=1):
    order: int


async def anything(_job: Any, _context: Context) -> None:
    raise NotImplementedError


def shop(schema: str | None = "shop") -> App:
    tables = MetaData(schema=schema)
    Table("receipts", tables, Column("id", Integer, primary_key=True))
    app = App("shop", tables=tables)
    app.handler(Paid, queue="llm")(anything)
    return app


async def test_everything_that_an_app_needs_is_there(
    empty_database: str, vhost: str, management: Management, tmp_path: Path
) -> None:
    file = tmp_path / "broker" / "definitions.json"

    done = await setup(
        database_url=empty_database, broker_url=vhost, app=shop(), definitions_file=file
    )

    assert done.revision == newest_revision()
    assert (done.tables, done.queues) == (("shop.receipts",), ("callbacks", "drill", "llm"))
    assert done.published.added == ("order.paid v1",)
    assert await _count(empty_database, "shop.receipts") == 0
    assert management.queue(vhost, "filaviva.work.llm")["durable"] is True
    names = {queue["name"] for queue in json.loads(file.read_text())["queues"]}
    assert "filaviva.work.llm" in names


async def test_setting_up_again_and_at_the_same_time_keeps_what_is_there(
    empty_database: str, vhost: str
) -> None:
    first = await setup(database_url=empty_database, broker_url=vhost, app=shop())
    await _execute(empty_database, "INSERT INTO shop.receipts VALUES (1)")

    again = await asyncio.gather(
        *(setup(database_url=empty_database, broker_url=vhost, app=shop()) for _ in range(3))
    )

    assert [each.published.added for each in (first, *again)] == [("order.paid v1",), (), (), ()]
    assert await _count(empty_database, "shop.receipts") == 1


async def test_several_setups_of_an_empty_database_at_once_all_succeed(
    empty_database: str, vhost: str
) -> None:
    done = await asyncio.gather(
        *(setup(database_url=empty_database, broker_url=vhost, app=shop()) for _ in range(3))
    )

    assert sum(each.published.added == ("order.paid v1",) for each in done) == 1


async def test_the_definitions_hold_the_queues_of_every_app(
    database: str, vhost: str, tmp_path: Path
) -> None:
    file = tmp_path / "definitions.json"
    post = App("post")
    post.handler(Sent, queue="mail")(anything)
    await setup(database_url=database, broker_url=vhost, app=shop())

    done = await setup(database_url=database, broker_url=vhost, app=post, definitions_file=file)

    names = {queue["name"] for queue in json.loads(file.read_text())["queues"]}
    assert done.queues == ("callbacks", "drill", "llm", "mail")
    assert {"filaviva.work.llm", "filaviva.work.mail"} <= names


async def test_without_an_app_database_and_broker_are_set_up(database: str, vhost: str) -> None:
    done: SetUp = await setup(database_url=database, broker_url=vhost)

    assert (done.tables, done.queues) == ((), ("callbacks", "drill"))


async def test_an_app_may_not_put_tables_into_our_schema(database: str, vhost: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a schema of its own"):
        await setup(database_url=database, broker_url=vhost, app=shop(schema="filaviva"))


async def _count(url: str, table: str) -> Any:
    return await _execute(url, f"SELECT count(*) FROM {table}")


async def _execute(url: str, statement: str) -> Any:
    engine = connect(url, name="test", size=2)
    try:
        async with engine.begin() as connection:
            result = await connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        await engine.dispose()
