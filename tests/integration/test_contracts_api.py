"""/v1/contracts: what may be sent, and what it costs to send what may not."""

from datetime import date
from typing import Any

import httpx2
import pytest
from pydantic import ConfigDict

from filaviva import App, Contract
from filaviva.operations import keys
from filaviva.publishing import publish
from fixtures.producer import Producer

OLD, NEW, SHIPPED = "order.ship", "order.ship", "order.shipped"


class Ship(Contract, type=OLD, version=1):
    """The first version."""

    order: int


class ShipTo(Contract, type=NEW, version=2):
    """The second version, with an example."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"order": 7, "to": "Lisboa"}]})
    order: int
    to: str


class Shipped(Contract, type=SHIPPED, version=1):
    """An event."""

    order: int


async def ship(_job: Any, _context: Any) -> dict[str, str]:
    raise NotImplementedError


@pytest.fixture
async def shop(producer: Producer) -> Producer:
    """A producer that knows the shop's contracts."""
    app = App("orders")
    app.handler(ShipTo)(ship)
    app.upcaster(Ship, to=2)(lambda data: {**data, "to": "Lisboa"})
    app.on_event(Shipped, name="thank")(ship)
    app.deprecate(Ship, sunset=date(2027, 3, 31))
    async with producer.engine.begin() as connection:
        await publish(connection, app)
    await producer.registry.refresh()
    return producer


async def test_every_version_is_listed_and_shown_with_schema_and_examples(shop: Producer) -> None:
    listed = (await shop.client.get("/v1/contracts", params={"type": "order.ship"})).json()
    newest = (await shop.client.get("/v1/contracts/order.ship/2")).json()

    assert [(each["version"], each["readAs"], each["deprecated"]) for each in listed["items"]] == [
        (1, 2, True),
        (2, 2, False),
    ]
    assert listed["next"] is None
    first = (await shop.client.get("/v1/contracts/order.ship/1")).json()
    assert first["examples"] == [{"order": 1}]  # made up: nobody has written one
    assert newest["examples"] == [{"order": 7, "to": "Lisboa"}]
    assert newest["schema"]["additionalProperties"] is False
    assert newest["resultSchema"]["type"] == "object"
    assert (await shop.client.get("/v1/contracts/order.ship/3")).status_code == 404


async def test_the_schema_alone_is_where_an_events_dataschema_leads(shop: Producer) -> None:
    answer = await shop.client.get(
        "/v1/contracts/order.shipped/1", headers={"Accept": "application/schema+json"}
    )

    assert answer.headers["content-type"] == "application/schema+json"
    assert answer.json()["properties"]["order"]["type"] == "integer"


async def test_a_key_sees_the_types_it_may_use_and_never_ours(shop: Producer) -> None:
    limited = await keys.create(
        shop.engine, name="few", tenant="default", scopes=["jobs:read"], types=["order.shipped"]
    )
    client = httpx2.AsyncClient(
        base_url=shop.url, headers={"Authorization": f"Bearer {limited.token}"}
    )

    async with client:
        items = (await client.get("/v1/contracts")).json()["items"]
        hidden = await client.get("/v1/contracts/order.ship/2")

    assert [each["type"] for each in items] == ["order.shipped", "order.shipped:thank"]
    assert hidden.status_code == 404


async def submit(shop: Producer, key: str, **body: Any) -> httpx2.Response:
    headers = {"Idempotency-Key": key}
    return await shop.client.post("/v1/jobs", json={"type": "order.ship", **body}, headers=headers)


async def test_who_sends_a_version_on_its_way_out_is_told_until_when(shop: Producer) -> None:
    old = await submit(shop, "1", version=1, data={"order": 7})
    new = await submit(shop, "2", data={"order": 7, "to": "Faro"})

    assert old.status_code == new.status_code == 202
    assert old.headers["sunset"] == "Wed, 31 Mar 2027 23:59:59 GMT"
    assert old.headers["deprecation"].startswith("@1")
    assert old.headers["link"] == '</v1/contracts/order.ship/2>; rel="successor-version"'
    assert "sunset" not in new.headers


async def test_what_does_not_fit_is_counted_by_reason_and_names_nothing_unknown(
    shop: Producer,
) -> None:
    await submit(shop, "1", version=1, data={"order": "seven"})
    await submit(shop, "2", data={"order": 7})
    await submit(shop, "3", version=9, data={})
    await shop.client.post(
        "/v1/jobs", json={"type": "no.such", "data": {}}, headers={"Idempotency-Key": "4"}
    )
    event = {"type": "order.shipped", "version": 1, "id": "5", "data": {"order": None}}
    await shop.client.post("/v1/events", json=event)

    def counted(kind: str, version: str, reason: str) -> float | None:
        labels = {"type": kind, "version": version, "reason": reason}
        registry = shop.metrics.registry
        return registry.get_sample_value("filaviva_contract_violations_total", labels)

    assert counted("order.ship", "1", "invalid_data") == 1
    assert counted("order.ship", "2", "invalid_data") == 1
    assert counted("order.ship", "unknown", "unknown_contract") == 1
    assert counted("unknown", "unknown", "unknown_contract") == 1
    assert counted("order.shipped", "1", "invalid_data") == 1
