"""An event becomes exactly one job for each handler, however often and on whatever way it comes."""

import asyncio
import json
from typing import Any

import aio_pika
import httpx2
import pytest

from fixtures.amqp import channel, drained
from fixtures.journey import Journey
from fixtures.waiting import until

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

TYPE = "ledger.happened.v1"
EXCHANGE = "filaviva.events"


def cloud_event(identity: str, what: str = "something", **attributes: str) -> dict[str, Any]:
    """A CloudEvent as any service would write it."""
    fixed = {"specversion": "1.0", "id": identity, "source": "/billing", "type": TYPE}
    return {**fixed, **attributes, "data": {"what": what}}


async def publish(journey: Journey, *bodies: bytes, **properties: Any) -> None:
    """Publish without any code of ours."""
    properties.setdefault("content_type", "application/cloudevents+json")
    async with await aio_pika.connect(journey.vhost) as connection:
        exchange = await (await connection.channel()).get_exchange(EXCHANGE, ensure=False)
        for body in bodies:
            await exchange.publish(aio_pika.Message(body, delivery_mode=2, **properties), TYPE)


async def over_http(journey: Journey, event: dict[str, Any]) -> httpx2.Response:
    """Publish as those do who have no AMQP."""

    async def answered() -> httpx2.Response | None:
        answer = await journey.call("producer", "POST", "/v1/events", json=event)
        return None if answer.status_code == 503 else answer

    found: httpx2.Response = await until(answered, seconds=30)
    return found


async def jobs_of(journey: Journey, identity: str, count: int) -> dict[str, str]:
    """Wait until so many jobs of an event have ended; give their types and states."""
    label = json.dumps({"event.id": identity})
    wanted = "SELECT type, state FROM filaviva.jobs WHERE labels @> $1::jsonb ORDER BY type"

    async def ended() -> dict[str, str] | None:
        rows = await journey.fetch(wanted, label)
        final = [row for row in rows if row["state"] in ("succeeded", "failed", "canceled")]
        assert len(rows) <= count
        return {row["type"]: row["state"] for row in rows} if len(final) == count else None

    found: dict[str, str] = await until(ended, seconds=40, every=0.05)
    return found


async def letters(journey: Journey, reason: str, count: int) -> list[Any]:
    """Wait for so many dead letters with this reason."""
    wanted = "SELECT * FROM filaviva.dead_letters WHERE reason = $1"

    async def arrived() -> list[Any] | None:
        rows = await journey.fetch(wanted, reason)
        return rows if len(rows) >= count else None

    found: list[Any] = await until(arrived, seconds=40)
    return found


BOTH = {"ledger.happened:book": "succeeded", "ledger.happened:thanks": "succeeded"}


async def effects(journey: Journey, identity: str) -> int:
    """Count what the jobs of an event did."""
    counted = (
        "SELECT count(*) FROM ledger.effects WHERE job_id IN"
        " (SELECT id FROM filaviva.jobs WHERE labels @> $1::jsonb)"
    )
    found: int = await journey.value(counted, json.dumps({"event.id": identity}))
    return found


async def test_copies_over_amqp_and_http_at_once_are_one_job_for_each_handler(
    standing: Journey,
) -> None:
    journey = standing
    await journey.start_all("worker")
    async with channel(journey.vhost) as other:
        await other.queue_declare("theirs")
        await other.queue_bind("theirs", "filaviva.lifecycle", "job.#")
    event = cloud_event("e-1")
    again = json.dumps(event, indent=2).encode()  # written differently, and the same

    answer, *_ = await asyncio.gather(
        over_http(journey, event), *(publish(journey, again, message_id="x") for _ in range(5))
    )

    assert answer.status_code == 202, answer.text
    assert {job["type"] for job in answer.json()["jobs"]} == set(BOTH)
    assert await jobs_of(journey, "e-1", 2) == BOTH
    await journey.settled()

    async def all_counted() -> bool:  # 5 by hand and the copy of the one over HTTP, on two queues
        counts = [
            await worker.metric(name, **labels)
            for worker in journey.services["worker"]
            for name, labels in (
                ("filaviva_jobs_submitted_total", {"source": "event"}),
                ("filaviva_duplicates_suppressed_total", {"consumer": "event"}),
            )
        ]
        return sum(counts) == 12

    await until(all_counted, seconds=30)
    assert await jobs_of(journey, "e-1", 2) == BOTH
    assert await effects(journey, "e-1") == 2
    assert await journey.value("SELECT count(*) FROM filaviva.dead_letters") == 0
    # One of the two handlers wants it known how its jobs end.
    (told,) = [json.loads(bytes(m.body)) for m in await drained(journey.vhost, "theirs")]
    assert (told["type"], told["data"]["type"]) == ("job.succeeded.v1", "ledger.happened:thanks")


async def test_another_meaning_under_the_same_name_is_a_dead_letter(standing: Journey) -> None:
    journey = standing
    await publish(journey, json.dumps(cloud_event("e-2")).encode())
    assert await jobs_of(journey, "e-2", 2) == BOTH

    await publish(journey, json.dumps(cloud_event("e-2", "something else")).encode())
    found = await letters(journey, "id_reused", 2)
    answer = await over_http(journey, cloud_event("e-2", "something else"))

    assert {letter["source_queue"] for letter in found} == {
        "filaviva.work.ledger", "filaviva.work.slow"
    }  # fmt: skip
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert await jobs_of(journey, "e-2", 2) == BOTH
    assert await effects(journey, "e-2") == 2


async def test_binary_mode_is_read_as_the_same_event(standing: Journey) -> None:
    journey = standing
    attributes = {"specversion": "1.0", "id": "e-3", "source": "/billing", "type": TYPE}
    for prefix in ("cloudEvents:", "cloudEvents_", "ce-"):
        headers = {f"{prefix}{name}": value for name, value in attributes.items()}
        await publish(
            journey, b'{"what": "something"}', headers=headers, content_type="application/json"
        )
    await publish(journey, json.dumps(cloud_event("e-3")).encode())
    nameless = {"cloudEvents:specversion": "1.0", "cloudEvents:type": TYPE}
    await publish(journey, b"{}", headers=nameless, content_type="application/json")

    await letters(journey, "undecodable", 2)  # one for each queue
    assert await jobs_of(journey, "e-3", 2) == BOTH


async def test_a_worker_killed_between_commit_and_ack_leaves_one_job(standing: Journey) -> None:
    journey = standing
    first = await journey.restart("worker", failpoints="event.committed=exit")
    await publish(journey, json.dumps(cloud_event("e-4")).encode())

    async def died() -> bool:
        return not first.alive

    await until(died, seconds=30)
    await journey.restart("worker")

    assert await jobs_of(journey, "e-4", 2) == BOTH
    assert await effects(journey, "e-4") == 2


async def test_an_event_that_nobody_was_bound_for_is_replayed_once_somebody_is(
    standing: Journey,
) -> None:
    journey = standing
    queues = ("filaviva.work.ledger", "filaviva.work.slow")
    async with channel(journey.vhost) as other:
        for queue in queues:
            await other.queue_unbind(queue, EXCHANGE, TYPE)
    await publish(journey, json.dumps(cloud_event("e-5")).encode(), message_id="e-5")
    (letter,) = await letters(journey, "unroutable", 1)

    async with channel(journey.vhost) as other:
        for queue in queues:
            await other.queue_bind(queue, EXCHANGE, TYPE)
    scope = {"scope": {"ids": [str(letter["id"])]}, "reason": "the handlers are bound now"}
    answer = await journey.call("dlq-handler", "POST", "/v1/replays", json=scope)

    assert answer.status_code == 202, answer.text
    assert await jobs_of(journey, "e-5", 2) == BOTH
