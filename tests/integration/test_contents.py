"""Data that is too large for a message goes by reference, and comes out as it went in."""

import json
from hashlib import sha256
from typing import Any

import httpx2
import pytest

from filaviva import App, Contract
from filaviva.event_publisher import Publisher
from filaviva.events import LARGEST
from filaviva.operations import keys
from filaviva.operations.erasure import erase
from filaviva.operations.jobs import Reach
from filaviva.publishing import publish
from filaviva.relay import encode
from filaviva.settings import RetentionGroup
from filaviva_contracts import Envelope
from filaviva_retry_scheduler.retention import Retention
from fixtures.dying import Morgue, Sent, died
from fixtures.producer import Producer

LINES = [{"number": n, "text": "x" * 90} for n in range(1000)]
BOOK = {"lines": LINES, "total": 1}


class Booked(Contract, type="book.written", version=1):
    """An event with much to say."""

    lines: list[dict[str, Any]]
    total: int


async def store(_event: Any, _ctx: Any) -> None:
    """Do nothing."""


@pytest.fixture
async def press(producer: Producer) -> Producer:
    """A producer whose events have a handler."""
    app = App("press")
    app.on_event(Booked, queue="llm", name="store")(store)
    async with producer.engine.begin() as connection:
        await publish(connection, app)
    await producer.registry.refresh()
    return producer


@pytest.fixture
def morgue(press: Producer) -> Morgue:
    """Rows beside it."""
    return Morgue(press.engine)


async def posted(press: Producer, data: Any = BOOK) -> Envelope:
    """Publish over HTTP; give the copy that other subscribers get."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    answer = await press.client.post(
        "/v1/events",
        content=f'{{"type":"book.written","version":1,"id":"b-1","data":{text}}}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 202, answer.text
    (copy,) = (row for row in press.relayed if row.exchange == "filaviva.events")
    assert len(encode(copy)) <= LARGEST
    return Envelope.decode(encode(copy))


async def test_a_large_event_is_a_whole_job_and_a_small_message(press: Producer) -> None:
    copy = await posted(press)

    (job,) = await press.execute("SELECT payload FROM filaviva.jobs")
    assert job.payload == BOOK
    assert copy.dataref is not None
    answer = await press.client.get(copy.dataref)
    assert answer.json() == BOOK
    assert copy.dataref.endswith(sha256(answer.content).hexdigest())


@pytest.mark.parametrize(
    ("data", "carried"),
    [
        ({"lines": LINES[:500], "total": 1}, True),
        # Small as it is sent, and large as PostgreSQL writes it into the message.
        ({"lines": [{"n": 1} for _ in range(6500)], "total": 1}, False),
        ('{"lines": [{"n": [%s 1]}], "total": 1}' % ("1e300, " * 250), False),
    ],
    ids=["500 lines", "much punctuation", "long numbers"],
)
async def test_what_fits_is_carried(press: Producer, data: Any, carried: bool) -> None:  # noqa: FBT001
    copy = await posted(press, data)

    assert (copy.dataref is None) is carried


async def test_a_content_is_its_tenants_alone_and_bounded(press: Producer) -> None:
    copy = await posted(press)
    other = await keys.create(press.engine, name="x", tenant="other", scopes=["jobs:read"])
    headers = {"Authorization": f"Bearer {other.token}"}
    huge = {"lines": LINES * 3, "total": 1}

    async with httpx2.AsyncClient(base_url=press.url, headers=headers) as stranger:
        hidden = await stranger.get(str(copy.dataref))
    refused = await press.client.post("/v1/contents", json=huge)
    body = {"type": "book.written", "version": 1, "id": "b-2", "data": huge}

    assert hidden.status_code == 404
    assert (refused.status_code, refused.json()["code"]) == (413, "data_too_large")
    assert (await press.client.post("/v1/events", json=body)).status_code == 413


async def test_the_same_text_is_kept_once_and_an_altered_one_is_not_given(press: Producer) -> None:
    first = await press.client.post("/v1/contents", json=BOOK)
    again = await press.client.post("/v1/contents", json=BOOK)
    dataref = first.json()["dataref"]

    assert first.status_code == 201
    assert again.json()["dataref"] == dataref
    assert (await press.client.get(dataref)).status_code == 200
    await press.execute("UPDATE filaviva.contents SET data = replace(data, 'x', 'y')")
    assert (await press.client.get(dataref)).status_code == 404


class Kept:
    """What an API would keep, remembered."""

    def __init__(self) -> None:
        self.contents: list[Any] = []

    async def put_content(self, content: Any) -> str:
        self.contents.append(content)
        return "/v1/contents/sha256-0"


async def test_a_publisher_puts_first_what_a_message_cannot_carry() -> None:
    kept = Kept()
    envelope = Envelope.of(Booked(**BOOK), id="b-1", source="/press")  # type: ignore[arg-type]

    body = await Publisher("amqp://x/", source="/press", contents=kept)._body(envelope)  # noqa: SLF001

    assert kept.contents == [BOOK]
    assert Envelope.decode(body).dataref == "/v1/contents/sha256-0"
    assert "data" not in json.loads(body)
    with pytest.raises(ValueError, match=r"larger data goes by reference: Publisher\("):
        await Publisher("amqp://x/", source="/press")._body(envelope)  # noqa: SLF001


async def test_a_content_that_is_not_there_is_said_to_be_missing(morgue: Morgue) -> None:
    morgue.contracts["book.written"] = (1,)
    event = Envelope(id="b-1", source="/press", type="book.written.v1")
    body = event.with_attributes({"dataref": "/v1/contents/sha256-00"}).encode()

    await morgue.file(Sent(body=body, headers=died("rejected")))

    (letter,) = await morgue.letters()
    assert (letter["reason"], letter["error"]["code"]) == ("terminal", "ContentMissing")
    assert "/v1/contents/sha256-00" in letter["error"]["message"]


async def test_it_goes_when_nobody_reads_it_but_not_while_a_letter_names_it(
    press: Producer, morgue: Morgue
) -> None:
    named = (await press.client.post("/v1/contents", json=BOOK)).json()["dataref"]
    await press.client.post("/v1/contents", json={"nobody": "names it"})
    event = Envelope(id="b-9", source="/press", type="book.written.v1")
    body = event.with_attributes({"dataref": named}).encode()
    await morgue.file(Sent(body=body, headers=died("rejected")))
    await morgue.all("UPDATE filaviva.contents SET used_at = now() - interval '31 days'")

    await Retention(morgue.engine, RetentionGroup()).step()

    (left,) = await morgue.all("SELECT encode(sha256, 'hex') AS name FROM filaviva.contents")
    assert named.endswith(left["name"])


async def test_erasing_a_job_erases_what_it_was_sent_as(press: Producer, morgue: Morgue) -> None:
    await posted(press)
    await press.client.post("/v1/contents", json={"somebody": "else's"})
    (job,) = await morgue.all("UPDATE filaviva.jobs SET state = 'canceled' RETURNING id")

    async with morgue.engine.begin() as connection:
        await erase(connection, job["id"], Reach("default"), author="ana")

    (left,) = await morgue.all("SELECT data FROM filaviva.contents")
    assert json.loads(left["data"]) == {"somebody": "else's"}


@pytest.mark.parametrize("version", [1, 9])
async def test_a_reference_lets_nobody_speak_for_another_tenant(
    morgue: Morgue, version: int
) -> None:
    morgue.contracts["book.written"] = (1,)
    event = Envelope(id="b-1", source="/press", type=f"book.written.v{version}")
    named = event.with_attributes({"dataref": "/v1/contents/sha256-00", "tenant": "acme"})

    await morgue.file(Sent(body=named.encode(), headers=died("rejected")))

    (letter,) = await morgue.letters()
    assert letter["reason"] == "forbidden"
