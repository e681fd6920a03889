"""A tracestate goes where its traceparent goes: into every message of the job, and its callback."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from filaviva import events, lifecycle, outbox, wakeups
from filaviva.database import as_dict
from filaviva.database.transaction import transact
from filaviva.operations.events import take
from filaviva.operations.requeue import requeue
from filaviva.outbox import OutboxRow
from filaviva.relay import encode
from filaviva_contracts import Envelope
from filaviva_retry_scheduler.decide import decide
from filaviva_worker.claim import claim
from filaviva_worker.wakeup import WakeUp
from fixtures.producer import Producer
from fixtures.retrying import Jobs

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61"
TRACED = {"traceparent": f"'{TRACE}'", "tracestate": f"'{STATE}'"}


async def lying(jobs: Jobs, job: UUID) -> list[OutboxRow]:
    """The job's messages as a sweep of the relay finds them."""
    statement = (
        f"UPDATE filaviva.outbox SET tries = 0 WHERE job_id = :id RETURNING {outbox.RETURNING}"
    )
    async with jobs.engine.begin() as connection:
        found = await connection.execute(text(statement), {"id": job})
        return outbox.rows(as_dict(row) for row in found)


def told(rows: Sequence[OutboxRow]) -> list[tuple[str | None, Any]]:
    """What their envelopes say of the trace."""
    envelopes = [Envelope.decode(encode(row)) for row in rows]
    return [(each.traceparent, each.extensions.get("tracestate")) for each in envelopes]


async def post(producer: Producer, path: str, body: Any, **headers: str) -> None:
    told = {"Idempotency-Key": uuid4().hex, **headers}
    answer = await producer.client.post(path, json=body, headers=told)
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize("state", [STATE, "A=1", "a=1,a=2"])
async def test_a_request_gives_it_to_the_job_and_its_wake_up_unless_it_is_broken(
    producer: Producer, state: str
) -> None:
    body = {"type": "test.echo", "data": {}}

    await post(producer, "/v1/jobs", body, traceparent=TRACE, tracestate=state)

    kept = state if state == STATE else None
    (stored,) = await producer.execute("SELECT traceparent, tracestate FROM filaviva.jobs")
    assert tuple(stored) == (TRACE, kept)
    assert told(producer.relayed) == [(TRACE, kept)]


async def test_without_its_traceparent_it_is_dropped(producer: Producer) -> None:
    await post(producer, "/v1/jobs", {"type": "test.echo", "data": {}}, tracestate=STATE)

    assert told(producer.relayed) == [(None, None)]


async def test_every_item_of_a_batch_has_it(producer: Producer) -> None:
    body = {"type": "test.echo", "items": [{}, {}]}

    await post(producer, "/v1/jobs", body, traceparent=TRACE, tracestate=STATE)

    stored = await producer.execute("SELECT tracestate FROM filaviva.jobs")
    assert [row.tracestate for row in stored] == [STATE] * 3
    assert told(producer.relayed) == [(TRACE, STATE)] * 2


async def test_it_is_in_every_message_of_a_job_whoever_relays_it(jobs: Jobs) -> None:
    job = await jobs.queued(**TRACED)
    wake = WakeUp(f"{job}:1:1", job, 1, "invoice.extract", 1, "llm")

    async with jobs.engine.begin() as connection:
        (again,) = await wakeups.reissue(connection, [(job, 1)])
        claims = await claim(connection, [wake], worker="w1", claim_id=uuid4(), lease_seconds=15)
        claimed = claims.claimed[job]

    assert claimed.tracestate == STATE
    assert told([again, *await lying(jobs, job)]) == [(TRACE, STATE)] * 2


async def test_it_outlives_retries_dead_letters_and_replays(jobs: Jobs) -> None:
    job = await jobs.failing(**TRACED)
    await transact(jobs.engine, lambda on: decide(on, [(job, 1)]))
    retried = await lying(jobs, job)
    dead = await jobs.failing("failed", **TRACED)
    await transact(jobs.engine, lambda on: decide(on, [(dead, 1)]))
    letter = await lying(jobs, dead)

    again = await transact(jobs.engine, lambda on: requeue(on, [dead], author="a", reason="r"))

    assert told([*retried, *letter, *again.messages]) == [(TRACE, STATE)] * 3


async def test_who_is_called_back_and_who_listens_are_told(jobs: Jobs) -> None:
    await jobs.policy(lifecycle=True)
    job = await jobs.running(callback_url="'https://shop.example/done'", **TRACED)

    async def end(connection: Any) -> None:
        await connection.exec_driver_sql(
            "UPDATE filaviva.jobs SET state = 'succeeded', finished_at = now() WHERE id = $1",
            (job,),
        )
        await lifecycle.tell(connection, [job])

    await transact(jobs.engine, end)

    (callback,) = await jobs.all(
        "SELECT id, traceparent, tracestate FROM filaviva.jobs WHERE type = 'filaviva.callback'"
    )
    assert (callback["traceparent"], callback["tracestate"]) == (TRACE, STATE)
    assert told(await lying(jobs, callback["id"])) == [(TRACE, STATE)]
    (event,) = await jobs.all("SELECT attributes FROM filaviva.outbox WHERE job_id IS NULL")
    assert event["attributes"] == {"subject": str(job), "tracestate": STATE}


@pytest.mark.parametrize("place", ["event", "headers"])
async def test_an_event_gives_it_to_its_jobs_be_it_in_the_event_or_its_headers(
    jobs: Jobs, place: str
) -> None:
    await jobs.all(
        "INSERT INTO filaviva.contracts (type, version, app, queue, schema, event)"
        " VALUES ('invoice.issued:book', 1, 'shop', 'llm', '{}', 'invoice.issued')"
    )
    trace = {"traceparent": TRACE, "tracestate": STATE}
    attributes = {"specversion": "1.0", "id": "1", "source": "/s", "type": "invoice.issued.v1"}
    body = json.dumps({**attributes, **(trace if place == "event" else {}), "data": {}}).encode()
    event = events.read(Envelope.decode(body), headers=trace if place == "headers" else {})

    taken = await transact(jobs.engine, lambda on: take(on, [event], queue="llm"))

    assert told(taken.rows) == [(TRACE, STATE)]
