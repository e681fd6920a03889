"""POST /v1/events: what is kept, what is refused, and what other subscribers get."""

from typing import Any
from uuid import uuid4

import httpx2
import pytest

from filaviva import App, Contract, Policy
from filaviva.operations import limits
from filaviva.operations.limits import Figures
from filaviva.publishing import publish
from filaviva.relay import encode
from filaviva_contracts import Envelope
from fixtures.producer import Producer
from fixtures.waiting import until

EXCHANGE = "filaviva.events"


class Issued(Contract, type="invoice.issued", version=1):
    number: int


class IssuedAgain(Contract, type="invoice.issued", version=2):
    number: int
    total: float = 0


class Unheard(Contract, type="invoice.unheard", version=1):
    number: int


async def nothing(_event: Any, _ctx: Any) -> None:
    pass


async def published(producer: Producer) -> None:
    books = App("books")
    books.on_event(Issued, queue="books", name="book", policy=Policy(max_attempts=7))(nothing)
    books.on_event(Issued, queue="mail", name="thank")(nothing)
    books.on_event(Unheard, queue="mail", name="gone")(nothing)
    audit = App("audit")  # another app that is interested in the same event
    audit.on_event(Issued, queue="audit", name="note")(nothing)
    audit.on_event(IssuedAgain, queue="audit", name="note")(nothing)
    async with producer.engine.begin() as connection:
        await publish(connection, books)
        await publish(connection, audit)
    await producer.execute(
        "UPDATE filaviva.contracts SET deprecated_at = now() WHERE event = 'invoice.unheard'"
    )
    await producer.registry.refresh()


async def post(
    producer: Producer, key: str | None = None, headers: Any = None, **body: Any
) -> httpx2.Response:
    body = {"type": "invoice.issued", "version": 1, "data": {"number": 17}, **body}
    key_header = {} if key is None else {"Idempotency-Key": key}
    return await producer.client.post(
        "/v1/events", json=body, headers={**key_header, **(headers or {})}
    )


def copies(producer: Producer) -> list[Envelope]:
    rows = [row for row in producer.relayed if row.exchange == EXCHANGE]
    return [Envelope.decode(encode(row)) for row in rows]


async def test_an_event_is_one_job_for_each_handler_of_every_app(producer: Producer) -> None:
    await published(producer)

    answer = await post(producer, "issued-17")
    again = await post(producer, "issued-17")

    said = answer.json()
    assert answer.status_code == 202
    assert (said["eventId"], said["source"], said["duplicate"]) == (
        "issued-17", "/v1/events", False
    )  # fmt: skip
    assert [job["type"] for job in said["jobs"]] == [
        "invoice.issued:book", "invoice.issued:note", "invoice.issued:thank"
    ]  # fmt: skip
    assert again.headers["Idempotent-Replayed"] == "true"
    assert [job["jobId"] for job in again.json()["jobs"]] == [job["jobId"] for job in said["jobs"]]
    rows = await producer.execute(
        "SELECT queue, max_attempts, tenant, payload FROM filaviva.jobs ORDER BY queue"
    )
    assert [tuple(row) for row in rows] == [
        ("audit", 5, "default", {"number": 17}),
        ("books", 7, "default", {"number": 17}),
        ("mail", 5, "default", {"number": 17}),
    ]
    listed = await producer.client.get("/v1/jobs?type=invoice.issued&label.event.id=issued-17")
    assert len(listed.json()["items"]) == 3


async def test_other_subscribers_get_one_copy_with_the_publishers_attributes(
    producer: Producer,
) -> None:
    await published(producer)
    event = {
        "specversion": "1.0",
        "type": "invoice.issued.v1",
        "id": "e-1",
        "source": "/billing",
        "subject": "invoices/17",
        "time": "2026-11-30T12:00:00Z",
        "partitionkey": "17",
    }

    for _ in range(2):
        answer = await post(producer, version=None, **event)
        assert answer.status_code == 202, answer.text

    (copy,) = copies(producer)
    assert (copy.id, copy.source, copy.type, copy.subject) == (
        "e-1", "/billing", "invoice.issued.v1", "invoices/17"
    )  # fmt: skip
    assert copy.time is not None
    assert copy.time.isoformat() == "2026-11-30T12:00:00+00:00"
    assert copy.extensions == {"partitionkey": "17"}
    assert copy.data == '{"number":17}'


async def test_tenants_never_meet_under_one_name(producer: Producer) -> None:
    await published(producer)
    other = await producer.as_key(tenant="acme")

    ours = await post(producer, "same", data={"number": 1})
    theirs = await post(producer, "same", headers=other, data={"number": 2})

    assert theirs.status_code == 202
    assert theirs.json()["duplicate"] is False
    mine = {job["jobId"] for job in ours.json()["jobs"]}
    assert mine.isdisjoint(job["jobId"] for job in theirs.json()["jobs"])
    assert [copy.extensions for copy in copies(producer)] == [{}, {"tenant": "acme"}]


async def test_an_event_that_nobody_handles_any_more_is_still_published(
    producer: Producer,
) -> None:
    await published(producer)

    first, again = [await post(producer, "u-1", type="invoice.unheard") for _ in range(2)]

    assert (first.json()["jobs"], first.json()["duplicate"]) == ([], False)
    assert again.json()["duplicate"] is True
    assert [copy.type for copy in copies(producer)] == ["invoice.unheard.v1"]


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"id": None}, 400, "idempotency_key_missing"),
    ({"type": "no.such"}, 422, "unknown_contract"),
    ({"type": "invoice.issued.v1", "version": 2}, 422, "invalid_request"),
    ({"version": 9}, 422, "unknown_contract"),
    ({"type": "test.echo"}, 422, "unknown_contract"),
    ({"data": {"number": "x"}}, 422, "invalid_data"),
    ({"data": {"number": 1, "more": 2}}, 422, "invalid_data"),
    ({"colour": "red"}, 422, "invalid_request"),
    ({"specversion": "1.0", "Colour": "red"}, 422, "invalid_request"),
    ({"specversion": "1.0", "tenant": "acme"}, 403, "forbidden"),
    ({"time": "yesterday"}, 422, "invalid_request"),
    ({"source": ""}, 422, "invalid_request"),
    ({"specversion": "1.0", "more": "x" * 70_000}, 413, "data_too_large"),
]


async def test_a_declared_event_is_published_though_nobody_here_handles_it(
    producer: Producer,
) -> None:
    declaring = App("declaring")
    declaring.publishes(Unheard)
    async with producer.engine.begin() as connection:
        await publish(connection, declaring)
    await producer.registry.refresh()

    taken = await post(producer, "unheard", type="invoice.unheard")
    wrong = await post(producer, "wrong", type="invoice.unheard", data={})

    assert taken.status_code == 202
    assert taken.json()["jobs"] == []
    (copy,) = copies(producer)
    assert copy.type == "invoice.unheard.v1"
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_data")


async def test_what_cannot_be_published_is_refused_and_nothing_is_kept(
    producer: Producer,
) -> None:
    await published(producer)

    for body, status, code in REFUSED:
        answer = await post(producer, **{"id": "e-1", **body})
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text

    assert await producer.execute("SELECT 1 FROM filaviva.inbox") == []
    assert producer.relayed == []


async def test_a_name_with_another_meaning_is_refused(producer: Producer) -> None:
    await published(producer)
    await post(producer, "e-1")

    other = await post(producer, "e-1", data={"number": 18})

    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert len(await producer.execute("SELECT 1 FROM filaviva.jobs")) == 3


async def test_a_key_of_an_event_may_publish_it_and_see_its_jobs_alone(
    producer: Producer,
) -> None:
    await published(producer)
    limited = await producer.as_key(types=["invoice.issued"])
    other = await producer.as_key(types=["test.echo"])

    answer = await post(producer, "e-1", headers=limited)
    refused = await post(producer, "e-2", headers=other)
    seen = await producer.client.get("/v1/jobs", headers=limited)
    unseen = await producer.client.get("/v1/jobs", headers=other)

    assert (answer.status_code, refused.status_code) == (202, 403)
    assert len(seen.json()["items"]) == 3
    assert unseen.json()["items"] == []


async def test_an_event_cannot_be_submitted_as_a_job_but_one_handler_can(
    producer: Producer,
) -> None:
    await published(producer)
    job: dict[str, Any] = {"data": {"number": 1}}

    refused = await producer.client.post(
        "/v1/jobs", json={**job, "type": "invoice.issued"}, headers={"Idempotency-Key": "1"}
    )
    kept = await producer.client.post(
        "/v1/jobs", json={**job, "type": "invoice.issued:book"}, headers={"Idempotency-Key": "1"}
    )

    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_contract")
    assert "POST /v1/events" in refused.json()["detail"]
    assert kept.status_code == 202


async def test_an_event_counts_as_one_submission_of_its_tenant(producer: Producer) -> None:
    await published(producer)
    async with producer.engine.begin() as connection:
        figures = Figures(per_minute=0.001, burst=1)
        await limits.put(connection, "default", "", figures, author="test")

    async def refused() -> httpx2.Response | None:
        answer = await post(producer, uuid4().hex)
        return answer if answer.status_code == 429 else None

    first = await post(producer, "e-1")
    answer = await until(refused)
    again = await post(producer, "e-1")

    assert first.status_code == 202
    assert answer.json()["code"] == "rate_limited"
    assert int(answer.headers["Retry-After"]) > 0
    assert (again.status_code, again.json()["duplicate"]) == (202, True)


@pytest.mark.parametrize("told", [{"tracestate": "rojo=1"}, {"tracestate": "BROKEN"}, {}])
async def test_an_event_keeps_the_tracestate_that_came_with_its_traceparent(
    producer: Producer, told: dict[str, str]
) -> None:
    await published(producer)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    await post(producer, "in-headers", headers={"traceparent": trace, **told})
    await post(producer, "in-the-body", traceparent=trace, **told)

    kept = "rojo=1" if told.get("tracestate") == "rojo=1" else None
    found = [(each.traceparent, each.extensions.get("tracestate")) for each in copies(producer)]
    assert found == [(trace, kept)] * 2
    stored = await producer.execute("SELECT DISTINCT tracestate FROM filaviva.jobs")
    assert [row.tracestate for row in stored] == [kept]
