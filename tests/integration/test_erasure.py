"""What a job knows of people can be erased; the facts stay."""

import json
import time
from typing import Any
from uuid import UUID

import pytest

from filaviva.errors import Rejected
from filaviva.operations.dead_letters import Filter
from filaviva.operations.replay import ReplayRequest
from filaviva.operations.requeue import requeue
from fixtures.dying import Morgue
from fixtures.producer import Producer

WHO = "Ana Souza"
SAID = json.dumps({"class": "upstream", "code": "E", "message": f"no {WHO}", "retryable": True})


@pytest.fixture
async def rows(producer: Producer) -> Morgue:
    return Morgue(producer.engine)


async def personal(rows: Morgue, **columns: Any) -> UUID:
    """Store a failed job that is full of somebody, with its dead letter and a finished replay."""
    text = f"'{json.dumps({'name': WHO})}'".replace(":", "\\:")
    said = SAID.replace(":", "\\:")
    job = await rows.failed(
        f"no {WHO}",
        type="'test.echo'",
        payload=text,
        result=text,
        subject=f"'{WHO}'",
        labels=text,
        progress=f"'{json.dumps({'done': 1, 'message': WHO})}'".replace(":", "\\:"),
        **{"error": f"'{said}'", **columns},
    )
    message = await rows.dead(job)
    await rows.file(message)
    data = {"status": "failed", "error": json.loads(SAID)}
    for kind, event in (("state", data), ("progress", {"done": 1, "message": WHO})):
        await rows.all(
            "INSERT INTO filaviva.job_events (job_id, kind, data)"
            " VALUES (:id, :kind, CAST(:data AS jsonb))",
            id=job, kind=kind, data=json.dumps(event),
        )  # fmt: skip
    await rows.all(
        "INSERT INTO filaviva.steps (job_id, revision, name, attempt, state, input, output,"
        " cost_usd) VALUES (:id, 1, 'fetch', 1, 'succeeded', CAST(:text AS jsonb),"
        " CAST(:text AS jsonb), 0.5)",
        id=job, text=json.dumps(WHO),
    )  # fmt: skip
    await rows.all(
        "WITH replay AS (INSERT INTO filaviva.replays (id, tenant, author, reason, scope, patch,"
        " state) VALUES (gen_random_uuid(), 'default', 'me', 'why', '{}', CAST(:patch AS jsonb),"
        " 'finished') RETURNING id) INSERT INTO filaviva.replay_letters (replay_id, dead_letter_id,"
        " state) SELECT replay.id, letter.id, 'sent' FROM replay, filaviva.dead_letters AS letter"
        " WHERE letter.job_id = :id",
        id=job, patch=json.dumps([{"op": "add", "path": "/name", "value": WHO}]),
    )  # fmt: skip
    return job


TABLES = (
    "jobs", "job_events", "steps", "attempts", "dead_letters", "failure_groups", "notifications",
    "replays", "replay_letters", "outbox", "audit_log", "llm_calls", "inbox",
)  # fmt: skip


async def mentions(rows: Morgue) -> list[str]:
    """Give the tables in which somebody's name still stands."""
    await rows.all("UPDATE filaviva.notifications SET state = 'sent' WHERE state = 'waiting'")
    found = []
    for table in TABLES:
        statement = f"SELECT 1 FROM filaviva.{table} AS t WHERE t\\:\\:text LIKE :who LIMIT 1"
        if await rows.all(statement, who=f"%{WHO}%"):
            found.append(table)
    return found


async def test_nothing_of_a_person_is_left_and_the_facts_stay(
    producer: Producer, rows: Morgue
) -> None:
    job = await personal(rows)
    before = (await producer.client.get(f"/v1/jobs/{job}")).json()
    assert {"jobs", "job_events", "steps", "dead_letters", "replays"} <= {*await mentions(rows)}

    answer = await producer.client.delete(f"/v1/jobs/{job}/data")

    assert answer.status_code == 200, answer.text
    assert await mentions(rows) == []
    after = (await producer.client.get(f"/v1/jobs/{job}")).json()
    assert after["erasedAt"] == answer.json()["erasedAt"]
    assert (after["result"], after["labels"], after["subject"]) == (None, {}, None)
    assert after["error"] == {"class": "upstream", "code": "E", "message": None, "retryable": True}
    facts = ("status", "attempt", "costUsd", "createdAt", "finishedAt", "type")
    assert {fact: after[fact] for fact in facts} == {fact: before[fact] for fact in facts}
    steps = (await producer.client.get(f"/v1/jobs/{job}/steps")).json()["items"]
    assert [(step["name"], step["costUsd"]) for step in steps] == [("fetch", "0.5")]
    timeline = (await producer.client.get(f"/v1/jobs/{job}/timeline")).json()["items"]
    assert [entry["kind"] for entry in timeline] == ["state", "progress"]
    deed = await rows.one("SELECT * FROM filaviva.audit_log WHERE action = 'job.data_erased'")
    assert (deed["target"], deed["tenant"]) == (str(job), "default")


async def test_erasing_again_changes_nothing(producer: Producer, rows: Morgue) -> None:
    job = await personal(rows)

    first = await producer.client.delete(f"/v1/jobs/{job}/data")
    again = await producer.client.delete(f"/v1/jobs/{job}/data")

    assert (again.status_code, again.json()) == (200, first.json())


async def test_a_batch_is_erased_with_its_items(producer: Producer, rows: Morgue) -> None:
    parent = await personal(rows)
    item = await personal(rows, parent_id=f"'{parent}'", item_index=0)
    await rows.all(
        "INSERT INTO filaviva.job_events (job_id, kind, data) VALUES"
        " (:id, 'item', CAST(:data AS jsonb))",
        id=parent, data=json.dumps({"jobId": str(item), "error": json.loads(SAID)}),
    )  # fmt: skip

    answer = await producer.client.delete(f"/v1/jobs/{parent}/data")

    assert answer.json()["items"] == 1
    assert await mentions(rows) == []
    assert (await producer.client.get(f"/v1/jobs/{item}")).json()["erasedAt"] is not None


async def test_a_large_batch_with_a_long_timeline_is_erased_in_time(
    producer: Producer, rows: Morgue
) -> None:
    made = await producer.client.post(
        "/v1/jobs",
        json={"type": "test.echo", "items": [{"n": n} for n in range(5000)]},
        headers={"Idempotency-Key": "large"},
    )
    parent = made.json()["jobId"]
    await rows.all("UPDATE filaviva.jobs SET state = 'canceled'")
    await rows.all(  # so that the planner takes a timeline for short
        "INSERT INTO filaviva.job_events (job_id, kind, data)"
        " SELECT gen_random_uuid(), 'state', '{}' FROM generate_series(1, 20000)"
    )
    await rows.all("ANALYZE filaviva.job_events")
    await rows.all(
        "INSERT INTO filaviva.job_events (job_id, kind, data) SELECT parent_id, 'item',"
        " jsonb_build_object('jobId', id, 'status', 'running', 'n', n)"
        " FROM filaviva.jobs, generate_series(1, 5) AS n WHERE parent_id IS NOT NULL"
    )

    began = time.monotonic()
    answer = await producer.client.delete(f"/v1/jobs/{parent}/data")

    assert answer.json()["items"] == 5000
    assert time.monotonic() - began < 4  # item by event it would be 125 million looks


async def test_what_still_needs_its_data_is_not_erased(producer: Producer, rows: Morgue) -> None:
    running = await rows.running(type="'test.echo'")
    parent = await rows.failed(type="'test.echo'")
    await rows.queued(parent_id=f"'{parent}'", item_index=0, type="'test.echo'")
    replayed = (await rows.letter_of(type="'test.echo'"))["job_id"]
    await rows.all("UPDATE filaviva.dead_letters SET status = 'replaying'")

    for job in (running, parent, replayed):
        answer = await producer.client.delete(f"/v1/jobs/{job}/data")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")

    rest = await rows.all("SELECT 1 FROM filaviva.jobs WHERE erased_at IS NOT NULL")
    assert rest == []


async def test_an_erased_job_cannot_be_replayed_and_says_why(
    producer: Producer, rows: Morgue
) -> None:
    erased = await personal(rows)
    emptied = await rows.failed("other", type="'test.echo'")
    await rows.file(await rows.dead(emptied))
    await rows.all("UPDATE filaviva.jobs SET removed = ARRAY['payload'] WHERE id = :id", id=emptied)
    await producer.client.delete(f"/v1/jobs/{erased}/data")

    for job, why in ((erased, "erased"), (emptied, "removed")):
        answer = await producer.client.post(f"/v1/jobs/{job}/retry")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert why in answer.json()["detail"]
        request = ReplayRequest(letters=Filter(job=job), author="me", reason="again")
        with pytest.raises(Rejected, match=f"its data was .*{why}") as refused:
            await rows.replay(request, producer.registry)
        assert refused.value.status == 409
    async with producer.engine.begin() as connection:
        again = await requeue(connection, [erased, emptied], author="me", reason="again")
    assert again.epochs == {}


async def test_only_the_owner_with_the_right_to_write_may_erase(
    producer: Producer, rows: Morgue
) -> None:
    job = await personal(rows)
    wanted = (
        (await producer.as_key(tenant="other"), 404),
        (await producer.as_key(types=["test.fetch"]), 404),
        (await producer.as_key(scopes=["jobs:read"]), 403),
    )
    for headers, status in wanted:
        answer = await producer.client.delete(f"/v1/jobs/{job}/data", headers=headers)
        assert answer.status_code == status
    assert "jobs" in await mentions(rows)


async def test_a_removed_job_is_gone_for_its_tenant_and_unknown_to_others(
    producer: Producer, rows: Morgue
) -> None:
    job = await rows.failed(type="'test.echo'")
    await rows.all(
        "WITH gone AS (DELETE FROM filaviva.jobs RETURNING id, tenant, type)"
        " INSERT INTO filaviva.tombstones (job_id, tenant, type) SELECT * FROM gone"
    )
    stranger = await producer.as_key(tenant="other")
    narrow = await producer.as_key(types=["test.fetch"])

    for path in ("", "/attempts", "/steps", "/timeline", "/llm-calls"):
        answer = await producer.client.get(f"/v1/jobs/{job}{path}")
        assert (answer.status_code, answer.json()["code"]) == (410, "gone")
    for method, path in (("DELETE", "/data"), ("POST", "/cancel")):
        answer = await producer.client.request(method, f"/v1/jobs/{job}{path}")
        assert answer.status_code == 410
    for headers in (stranger, narrow):
        answer = await producer.client.get(f"/v1/jobs/{job}", headers=headers)
        assert answer.status_code == 404
