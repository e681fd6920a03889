"""One open stream: what it sends, whom it lets go, and that its seat is free afterwards."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from filaviva.errors import Rejected
from filaviva.operations.jobs import Event
from filaviva.operations.timelines import News
from filaviva.telemetry.metrics import Metrics
from filaviva_producer.event_stream import EventStream, Stream
from filaviva_producer.seats import Seats
from filaviva_producer.streaming import tell
from filaviva_producer.streams import Follower


class Client:
    """The other side of a stream; `reads`: so many messages, then nothing more."""

    def __init__(self, reads: int = 1000) -> None:
        self.got: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self._reads = reads

    async def send(self, message: Any) -> None:
        if len(self.got) >= self._reads:
            await asyncio.Event().wait()
        self.got.append(message)

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    @property
    def body(self) -> bytes:
        return b"".join(one.get("body", b"") for one in self.got)


def follower() -> Follower:
    return Follower(uuid4(), 0, lambda: None)


async def always() -> bool:
    return True


def news(*ids: int, ended: bool = False) -> News:
    data = '{"status": "running"}'
    entries = tuple(Event(one, datetime(2026, 1, 1, tzinfo=UTC), "state", data) for one in ids)
    return News(entries, ended, more=False)


async def open_on(
    client: Client, follower: Follower, seat: AbstractContextManager[None], **more: Any
) -> None:
    stream = Stream(b"opening", tell, more.pop("still", always), more.pop("beat", 15), **more)
    answer = EventStream(stream, seat, nullcontext(follower))
    await answer({"type": "http"}, client.receive, client.send)


async def test_it_sends_what_is_new_and_ends_with_the_job() -> None:
    client, one = Client(), follower()
    one.give(news(1, 2))
    opened = asyncio.create_task(open_on(client, one, nullcontext()))
    await asyncio.sleep(0)
    one.give(news(2, 3, ended=True))

    await asyncio.wait_for(opened, timeout=5)

    assert client.body.count(b"event: state") == client.body.count(b"\nid: ")
    assert client.body.index(b"opening") < client.body.index(b"id: 1\n")
    assert client.got[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_client_that_reads_nothing_loses_its_seat() -> None:
    seats, client, one = (
        Seats(Metrics().sse_clients, most=1, of_a_tenant=1),
        Client(reads=2),
        follower(),
    )
    one.give(news(1))

    await asyncio.wait_for(
        open_on(client, one, seats.taken("acme", "me", each=1), patience=0.05), 5
    )

    with seats.taken("acme", "me", each=1):
        pass
    assert all(message.get("more_body", True) for message in client.got)


async def test_a_client_that_goes_ends_its_stream() -> None:
    client = Client()
    opened = asyncio.create_task(open_on(client, follower(), nullcontext()))
    client.gone.set()

    await asyncio.wait_for(opened, timeout=5)


async def test_what_is_not_allowed_any_more_ends_at_the_next_beat() -> None:
    client, answers = Client(), iter((True, False))

    async def still() -> bool:
        return next(answers)

    await asyncio.wait_for(open_on(client, follower(), nullcontext(), still=still, beat=0.01), 5)

    assert client.body.endswith(b": ping\n\n")


def test_a_seat_is_refused_for_the_holder_first() -> None:
    seats = Seats(Metrics().sse_clients, most=2, of_a_tenant=2)
    a, b = (partial(seats.taken, "acme", one, each=1) for one in "ab")

    with a(), pytest.raises(Rejected) as mine, a():
        pass
    with a(), b(), pytest.raises(Rejected) as ours:
        seats.taken("other", "c", each=1).__enter__()

    assert (mine.value.status, mine.value.code) == (429, "too_many_streams")
    assert (ours.value.status, ours.value.code) == (503, "overloaded")
    assert mine.value.retry_after
    assert ours.value.retry_after


def test_the_keys_of_one_tenant_leave_seats_for_others() -> None:
    seats = Seats(Metrics().sse_clients, most=3, of_a_tenant=2)
    one, two, three = (partial(seats.taken, "acme", key, each=1) for key in "abc")

    with one(), two():
        with pytest.raises(Rejected) as refused, three():
            pass
        with seats.taken("other", "d", each=1):
            pass
    with three():
        pass

    assert (refused.value.status, refused.value.code) == (429, "too_many_streams")


async def test_one_that_has_not_taken_is_given_nothing_and_asks_again_when_it_has() -> None:
    asked: list[str] = []
    one = Follower(uuid4(), 0, lambda: asked.append("hurry"))
    one.give(news(1))

    assert not one.hungry()
    taken = await one.take(1)
    assert one.hungry()

    assert [entry.id for entry in taken] == [1]
    assert asked == ["hurry"]
    assert await one.take(0.01) == []
