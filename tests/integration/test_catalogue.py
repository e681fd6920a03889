"""GET /contracts: the contracts for people, with a key or a signed link, without scripts."""

import re
import time
from collections.abc import Callable, Collection

import pytest

from filaviva import App, Contract
from filaviva.operations.catalogue_links import CatalogueLinks
from filaviva.publishing import publish
from fixtures.producer import SECRET, Producer
from fixtures.status_page import HOSTILE, Pages

LINKS = CatalogueLinks(SECRET)


def link(types: Collection[str] | None = None, *, seconds: float = 3600) -> str:
    return LINKS.make(types, expires=int(time.time() + seconds))


async def test_a_key_opens_it(producer: Producer) -> None:
    page = await producer.client.get("/contracts")

    assert page.status_code == 200
    assert "test.fetch.v2" in page.text
    assert "<code>depth</code>" in page.text
    assert "POST /v1/jobs with Idempotency-Key" in page.text
    assert "filaviva.lifecycle" in page.text


async def test_a_signed_link_opens_it_for_whoever_has_it(pages: Pages) -> None:
    page = await pages.client.get(link())

    assert page.status_code == 200
    (document,) = re.findall(r'href="(contracts/asyncapi.json[^"]*)"', page.text)
    found = await pages.client.get(f"/{document.replace('&amp;', '&')}")
    assert found.json()["asyncapi"] == "3.1.0"


async def test_a_link_for_some_types_shows_those(pages: Pages) -> None:
    page = await pages.client.get(link(["test.echo"]))

    assert "test.echo.v1" in page.text
    assert "test.fetch" not in page.text


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda _: "/contracts", 401),
        (lambda _: link(seconds=-1), 403),
        (lambda whole: whole.replace("types=test.echo", "types="), 403),
        (lambda whole: whole.replace("expires=1", "expires=2"), 403),
        (lambda whole: re.sub("signature=.", "signature=", whole), 403),
        (lambda whole: re.sub("expires=[0-9]+", "expires=%E0%A4%A", whole), 403),
    ],
)
async def test_nothing_else_opens_it(
    pages: Pages, change: Callable[[str], str], status: int
) -> None:
    address = change(link(["test.echo"]))

    page = await pages.client.get(address)
    document = await pages.client.get(address.replace("/contracts", "/contracts/asyncapi.json"))

    assert page.status_code == document.status_code == status
    assert "test.echo" not in page.text + document.text
    assert "filaviva contracts link" in page.text
    assert document.headers["content-type"] == "application/problem+json"


async def test_it_loads_nothing_from_elsewhere_and_no_script(pages: Pages) -> None:
    page = await pages.client.get(link())

    assert "<script" not in page.text
    loaded = re.findall(r'(?:src|<link[^>]* href)="([^"]*)"', page.text)
    assert loaded
    assert all(re.fullmatch(r"contracts/contracts\.css\?v=\w+", one) for one in loaded)
    style = await pages.client.get(f"/{loaded[0]}")
    assert style.status_code == 200
    assert "://" not in style.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert len(page.content) < 50_000


async def test_what_a_contract_says_is_text_and_never_markup(
    producer: Producer, pages: Pages
) -> None:
    class Bad(Contract, type="test.bad", version=1):
        text: str = HOSTILE

    Bad.__doc__ = HOSTILE
    bad = App("bad")

    @bad.on_event(Bad, queue="tests")
    async def take(event: Bad, _ctx: object) -> str:
        return event.text

    async with producer.engine.begin() as connection:
        await publish(connection, bad)
    await producer.registry.refresh()

    page = await pages.client.get(link())

    assert "test.bad.v1" in page.text
    assert "alert(1)" in page.text
    assert "<script" not in page.text
    assert "<img" not in page.text
