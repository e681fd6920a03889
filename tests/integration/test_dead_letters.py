"""What becomes of each kind of message that dies, on a real database."""

import asyncio
from typing import Any

import pytest

from filaviva.broker.topology import Topology
from filaviva.errors import Flaw
from filaviva_contracts import Envelope
from filaviva_dlq_handler.arrival import read
from fixtures.dying import Morgue, Sent, died, event

UNROUTABLE = Topology().unroutable


async def only(rows: Any) -> dict[str, Any]:
    (row,) = await rows
    return dict(row)


async def test_a_failed_job_becomes_a_letter_with_its_cause_and_cost(morgue: Morgue) -> None:
    job = await morgue.failed("no answer", cost_usd="0.25")

    filed = await morgue.file(await morgue.dead(job, "attempts_exhausted"))

    letter = await only(morgue.letters())
    assert (letter["job_id"], letter["epoch"], letter["status"]) == (job, 1, "open")
    assert (letter["type"], letter["version"], letter["tenant"]) == (
        "invoice.extract", 1, "default"
    )  # fmt: skip
    assert (letter["reason"], letter["attempts"]) == ("attempts_exhausted", 3)
    assert str(letter["cost_usd"]) == "0.25"
    assert letter["error"] == {
        "class": "upstream", "code": "ServerError", "message": "no answer",
        "frames": ["app.py:run", "app.py:call"], "step": None,
    }  # fmt: skip
    assert letter["raw"] is None
    assert filed.filed == [("invoice.extract", "attempts_exhausted")]


@pytest.mark.parametrize("queue", ["filaviva.dead.letters", UNROUTABLE])
async def test_an_event_in_the_name_of_another_tenant_is_forbidden_however_it_died(
    morgue: Morgue, queue: str
) -> None:
    forged = Envelope.decode(event("invoice.extract.v1")).with_attributes({"tenant": "acme"})
    sent = Sent(body=forged.encode(), headers=died("rejected"), user="shop")

    await morgue.file(sent, queue=queue)

    letter = await only(morgue.letters())
    assert letter["reason"] == "forbidden"
    assert "'shop' may not publish for tenant 'acme'" in letter["error"]["message"]
    assert "FILAVIVA_EVENTS__TENANTS" in letter["error"]["message"]


async def test_the_same_death_told_again_adds_nothing(morgue: Morgue) -> None:
    job = await morgue.failed()
    message = await morgue.dead(job)
    await morgue.file(message, message)

    again = await morgue.file(message, await morgue.dead(job, copy=":2"))

    assert len(await morgue.letters()) == 1
    assert (await only(morgue.groups()))["count"] == 1
    assert list(again.closed) == ["duplicate", "duplicate"]


async def test_two_handlers_that_file_the_same_death_at_once_file_it_once(morgue: Morgue) -> None:
    jobs = [await morgue.failed() for _ in range(20)]
    first = [await morgue.dead(job) for job in jobs]
    second = [await morgue.dead(job, copy=":2") for job in reversed(jobs)]

    await asyncio.gather(*[morgue.file(*messages) for messages in (first, second) * 3])

    assert len(await morgue.letters()) == 20
    assert (await only(morgue.groups()))["count"] == 20
    assert len(await morgue.alerts()) == 1


async def test_a_death_of_an_earlier_epoch_is_closed_silently(morgue: Morgue) -> None:
    job = await morgue.failed()
    message = await morgue.dead(job)
    await morgue.all("UPDATE filaviva.jobs SET epoch = 2, state = 'queued' WHERE id = :id", id=job)

    filed = await morgue.file(message)

    assert list(filed.closed) == ["stale"]
    assert await morgue.letters() == []


async def test_an_innocent_wake_up_is_issued_again_under_the_same_epoch(morgue: Morgue) -> None:
    job = await morgue.queued(epoch=4)

    filed = await morgue.file(await morgue.wake_up(job, "delivery_limit"))

    row = await morgue.row(job)
    assert (row["state"], row["epoch"], row["issue"], row["delivery_limits"]) == ("queued", 4, 2, 1)
    assert [message.message_id for message in filed.messages] == [f"{job}:4:2"]
    assert [sent["message_id"] for sent in await morgue.outbox(job)] == [f"{job}:4:2"]
    assert await morgue.letters() == []


async def test_the_third_delivery_limit_fails_the_job(morgue: Morgue) -> None:
    job = await morgue.queued()

    for issue in (1, 2, 3):
        await morgue.file(await morgue.wake_up(job, "delivery_limit", issue=issue))

    row = await morgue.row(job)
    assert (row["state"], row["issue"], row["error"]["code"]) == ("failed", 3, "DeliveryLimit")
    assert (await only(morgue.letters()))["reason"] == "delivery_limit"
    assert ("state", "failed") in [
        (kind, detail["status"]) for kind, detail in await morgue.events(job)
    ]


@pytest.mark.parametrize("state", ["running", "succeeded", "failed", "canceled"])
async def test_a_wake_up_of_a_job_that_does_not_wait_is_closed(morgue: Morgue, state: str) -> None:
    job = await morgue.queued(state=f"'{state}'")

    filed = await morgue.file(await morgue.wake_up(job, "delivery_limit"))

    assert list(filed.closed) == ["stale"]
    assert (await morgue.row(job))["state"] == state


async def test_a_version_that_no_worker_reads_parks_the_job_and_tells_once(morgue: Morgue) -> None:
    await morgue.worker(
        queues="ARRAY['llm']", reads="""'[{"type"\\: "invoice.extract", "min"\\: 1, "max"\\: 1}]'"""
    )
    job = await morgue.queued(version=2)

    await morgue.file(await morgue.wake_up(job, "rejected"))
    await morgue.file(await morgue.wake_up(job, "rejected", issue=2))

    row = await morgue.row(job)
    assert (row["state"], row["parked_reason"]) == ("queued", "unsupported_version")
    assert (await only(morgue.letters()))["reason"] == "unsupported_version"
    assert len(await morgue.alerts()) == 1


async def test_an_old_worker_beside_a_capable_one_alarms_nobody(morgue: Morgue) -> None:
    await morgue.worker(
        queues="ARRAY['llm']", reads="""'[{"type"\\: "invoice.extract", "min"\\: 1, "max"\\: 2}]'"""
    )
    job = await morgue.queued(version=2)

    await morgue.file(await morgue.wake_up(job, "rejected"))

    assert (await morgue.row(job))["parked_reason"] == "unsupported_version"
    assert await morgue.letters() == []


async def test_a_wake_up_without_a_queue_parks_its_job(morgue: Morgue) -> None:
    job = await morgue.queued()

    await morgue.file(await morgue.wake_up(job, None), queue=UNROUTABLE)

    assert (await morgue.row(job))["parked_reason"] == "queue_missing"
    assert (await only(morgue.letters()))["reason"] == "unroutable"


FOREIGN = [
    (Sent(body=b"\xff\x00{", headers=died("rejected")), "undecodable"),
    (Sent(body=b"not json", headers=died("rejected")), "undecodable"),
    (Sent(body=b'{"specversion":"1.0"}', headers=died("rejected")), "undecodable"),
    (Sent(body=event(data='"\\u0000"'), headers=died("rejected")), "undecodable"),
    (Sent(body=event("filaviva.wakeup.v1"), headers=died("rejected")), "undecodable"),
    (Sent(body=b"[" * 200_000, headers=died("rejected")), "oversize"),
    (Sent(body=event("who.knows.v1"), headers=died("rejected")), "unknown_type"),
    (Sent(body=event("who.knows"), headers=died("rejected")), "unknown_type"),
    (Sent(body=event("invoice.extract.v9"), headers=died("rejected")), "unsupported_version"),
    (Sent(body=event("invoice.extract.v1"), headers=died("rejected")), "terminal"),
    (Sent(body=event("who.knows.v1"), headers=died("delivery_limit")), "delivery_limit"),
]


@pytest.mark.parametrize(("message", "reason"), FOREIGN)
async def test_what_is_no_job_of_ours_keeps_its_bytes_and_a_reason(
    morgue: Morgue, message: Sent, reason: str
) -> None:
    await morgue.file(message)

    letter = await only(morgue.letters())
    assert letter["reason"] == reason
    assert (letter["job_id"], letter["tenant"]) == (None, None)
    assert letter["raw"] == message.body
    assert (letter["exchange"], letter["routing_key"]) == ("filaviva.jobs", "llm")
    assert letter["source_queue"] == "filaviva.work.llm"
    assert len(await morgue.alerts()) == 1


async def test_an_event_that_nobody_wanted_is_unroutable(morgue: Morgue) -> None:
    sent = Sent(body=event(), exchange="filaviva.events", routing_key="order.placed.v1")

    await morgue.file(sent, queue=UNROUTABLE)

    letter = await only(morgue.letters())
    assert (letter["reason"], letter["exchange"]) == ("unroutable", "filaviva.events")


async def test_data_that_does_not_fit_its_contract_says_where(morgue: Morgue) -> None:
    morgue.flaws = [Flaw("/url", "it is missing")]

    await morgue.file(Sent(body=event("invoice.extract.v1"), headers=died("rejected")))

    error = (await only(morgue.letters()))["error"]
    assert (error["class"], error["code"]) == ("invalid_input", "InvalidData")
    assert "/url: it is missing" in error["message"]


async def test_a_reused_message_id_loses_no_message(morgue: Morgue) -> None:
    messages = [
        Sent(body=body, message_id="same", headers=died("rejected"))
        for body in (b"one", b"two", b"two")
    ]

    await morgue.file(*messages)
    await morgue.file(*messages)

    assert [(row["raw"], row["reason"]) for row in await morgue.letters()] == [
        (b"one", "undecodable"), (b"two", "id_reused"),
    ]  # fmt: skip


async def test_messages_without_an_id_are_not_taken_for_each_other(morgue: Morgue) -> None:
    nameless = Sent(body=b"x", message_id=None, headers=died("rejected"))

    await morgue.file(nameless, nameless)

    assert len(await morgue.letters()) == 2


async def test_one_id_that_died_in_two_queues_is_two_messages(morgue: Morgue) -> None:
    for queue in ("filaviva.work.a", "filaviva.work.b"):
        headers = died("rejected", queue)
        await morgue.file(Sent(body=b"x", message_id="one", headers=headers))

    assert len(await morgue.letters()) == 2


async def test_strange_headers_and_ids_are_stored(morgue: Morgue) -> None:
    headers = {
        "nul\x00": b"\xff\x00",
        "deep": {"a": {"b": {"c": {"d": 1}}}},
        "nan": float("nan"),
        "big": 2**80,
        "list": [None, True, 1.5],
    }
    await morgue.file(
        Sent(body=b"x", message_id="id\x00" * 800, content_type="\x00", headers=headers)
    )
    await morgue.file(Sent(body=b"y", headers={f"h{n}": "x" * 400 for n in range(100)}))

    first, second = await morgue.letters()
    assert first["headers"]["list"] == [None, True, 1.5]
    assert "dropped" in second["headers"]


async def test_a_message_that_names_no_job_of_ours_is_not_dropped(morgue: Morgue) -> None:
    job = await morgue.failed()
    message = await morgue.dead(job)
    await morgue.all("DELETE FROM filaviva.jobs WHERE id = :id", id=job)

    await morgue.file(message)

    letter = await only(morgue.letters())
    assert (letter["reason"], letter["error"]["code"]) == ("unroutable", "UnknownJob")
    assert letter["raw"] == message.body


async def test_a_mixed_batch_is_one_commit(morgue: Morgue) -> None:
    failed, innocent = await morgue.failed(), await morgue.queued()

    filed = await morgue.file(
        await morgue.dead(failed),
        await morgue.wake_up(innocent, "delivery_limit"),
        Sent(body=b"x", headers=died("rejected")),
    )

    assert len(await morgue.letters()) == 2
    assert len(await morgue.groups()) == 2
    assert filed.jobs == {failed, innocent}


async def test_bytes_that_nobody_can_read_never_break_the_reader() -> None:
    topology = Topology()
    for headers in ({"x-death": "no"}, {"x-death": [1]}, {"x-death": [{"routing-keys": 3}]}):
        arrival = read(Sent(body=b"", headers=headers), topology.dead_letters, topology)
        assert arrival.death.queue is None
