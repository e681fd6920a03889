"""What nobody can process becomes a dead letter with a reason; the neighbours go on."""

import asyncio
import gzip
import json
from typing import Any
from uuid import UUID, uuid4

import aio_pika
import pytest

from fixtures.journey import Journey
from fixtures.waiting import until

pytestmark = pytest.mark.timeout(120)


async def publish(journey: Journey, body: bytes, **properties: Any) -> None:
    """Put bytes on the work queue, as a stranger would."""
    exchange = properties.pop("exchange", "filaviva.jobs")
    key = properties.pop("key", "ledger")
    connection = await aio_pika.connect(journey.vhost)
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        target = await channel.get_exchange(exchange, ensure=False)
        properties.setdefault("message_id", uuid4().hex)
        message = aio_pika.Message(body, delivery_mode=2, **properties)
        await target.publish(message, key, timeout=20)


async def letters(journey: Journey, count: int, *, seconds: float = 40) -> list[Any]:
    """Wait for so many dead letters."""

    async def arrived() -> list[Any] | None:
        rows = await journey.fetch("SELECT * FROM filaviva.dead_letters ORDER BY created_at")
        return rows if len(rows) >= count else None

    found: list[Any] = await until(arrived, seconds=seconds)
    return found


def wake_up(job: UUID | str, *, type_: str = "ledger.work", version: int = 1) -> bytes:
    """A wake-up that was never in the outbox."""
    content = {"jobId": str(job), "epoch": 1, "type": type_, "version": version, "queue": "ledger"}
    event = {
        "specversion": "1.0",
        "id": uuid4().hex,
        "source": "/stranger",
        "type": "filaviva.wakeup.v1",
        "data": content,
    }
    return json.dumps(event).encode()


BROKEN = {
    "empty": b"",
    "not json": b"\x00\xff\xfe broken",
    "half json": b'{"specversion": "1.0", "id": "x"',
    "gzip": gzip.compress(b'{"a": 1}' * 1000),
    "too deep": b"[" * 50_000,
    "a number": b"17",
    "NUL": b'{"specversion":"1.0","id":"a\\u0000b","source":"s","type":"t.v1"}',
    "lone surrogate": b'{"specversion":"1.0","id":"\\ud800","source":"s","type":"t.v1"}',
    "10 MB": b"x" * 10_000_000,
    "no event": b'{"hello": "world"}',
    "wake-up without a job": b'{"specversion":"1.0","id":"1","source":"s",'
    b'"type":"filaviva.wakeup.v1","data":{"jobId":"nobody"}}',
}


async def test_undecodable_bytes_are_kept_raw_and_the_consumer_goes_on(journey: Journey) -> None:
    await journey.start_all()

    for body in BROKEN.values():
        await publish(journey, body)
    job = await journey.submit()

    assert await journey.final(job) == {job: "succeeded"}
    found = await letters(journey, len(BROKEN))
    assert {bytes(letter["raw"]) for letter in found} == set(BROKEN.values())
    reasons = {bytes(letter["raw"]): letter["reason"] for letter in found}
    assert reasons.pop(BROKEN["10 MB"]) == "oversize"
    assert set(reasons.values()) == {"undecodable"}

    async def alerted() -> bool:
        return bool(journey.slack.posts)

    await until(alerted, seconds=20)


async def test_an_event_of_an_unknown_type_is_a_dead_letter(journey: Journey) -> None:
    await journey.start_all("worker", "dlq-handler")
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "no.such.v3", "data": {}}

    await publish(journey, json.dumps(event).encode())

    (letter,) = await letters(journey, 1)
    assert (letter["reason"], letter["type"], letter["version"]) == ("unknown_type", "no.such", 3)


async def test_a_version_from_the_future_parks_and_is_released_by_a_worker_that_reads_it(
    journey: Journey,
) -> None:
    await journey.start_all()
    await journey.books.execute(
        "INSERT INTO filaviva.contracts (type, version, app, queue, schema)"
        " SELECT type, 9, app, queue, schema FROM filaviva.contracts WHERE type = 'ledger.work'"
    )

    async def accepted() -> UUID | None:
        answer = await journey.call(
            "producer",
            "POST",
            "/v1/jobs",
            json={"type": "ledger.work", "version": 9, "data": {}},
            headers={"Idempotency-Key": "future"},
        )
        return UUID(answer.json()["jobId"]) if answer.status_code == 202 else None

    job: UUID = await until(accepted, seconds=20, every=0.2)

    async def parked() -> bool:
        return (await journey.row(job))["parked_reason"] == "unsupported_version"

    await until(parked, seconds=30)
    assert (await journey.row(job))["attempt"] == 0
    await journey.books.execute(
        "INSERT INTO filaviva.workers (id, service, host, pid, queues, reads, last_seen_at) VALUES"
        " ('newer', 'worker', 'h', 1, '{ledger}', $1, clock_timestamp() + interval '1 hour')",
        json.dumps([{"type": "ledger.work", "min": 1, "max": 9}]),
    )

    async def released() -> bool:
        row = await journey.row(job)
        return row["parked_reason"] is None and row["epoch"] > 1

    await until(released, seconds=40)


async def test_an_unroutable_event_is_a_dead_letter(journey: Journey) -> None:
    await journey.start_all("dlq-handler")

    await publish(
        journey, b'{"specversion":"1.0","id":"1","source":"/s","type":"nobody.listens.v1"}',
        exchange="filaviva.events", key="nobody.listens.v1",
    )  # fmt: skip

    (letter,) = await letters(journey, 1)
    assert letter["reason"] == "unroutable"


@pytest.mark.parametrize("bad", ["a\u0000b", "x" * 1_100_000])
async def test_a_result_that_cannot_be_kept_fails_that_job_alone(
    journey: Journey, bad: str
) -> None:
    await journey.start_all("producer", "retry-scheduler", "dlq-handler")
    good = await asyncio.gather(*(journey.submit(result=n) for n in range(20)))
    spoiled = await journey.submit("spoiled", long=len(bad) > 10)
    await journey.start_all("worker")

    states = await journey.final(*good, spoiled)

    assert states.pop(spoiled) == "failed"
    assert set(states.values()) == {"succeeded"}
    error = json.loads((await journey.row(spoiled))["error"])
    assert error["class"] == "invalid_output"
    assert (await journey.row(spoiled))["attempt"] == 1


async def test_a_wake_up_of_a_job_that_nobody_knows_is_let_go(journey: Journey) -> None:
    await journey.start_all("worker", "dlq-handler", "producer")

    await publish(journey, wake_up(uuid4()))
    job = await journey.submit()

    assert await journey.final(job) == {job: "succeeded"}

    async def counted() -> bool:
        return await journey.now("worker").metric("filaviva_duplicates_suppressed_total") == 1

    await until(counted, seconds=20)
