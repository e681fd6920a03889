"""Repeat what failed over HTTP: those parts alone, perhaps corrected, with everything kept."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
import simplejson

from filaviva.operations.batches import follow
from fixtures.producer import Producer


async def submit(producer: Producer, **body: Any) -> str:
    content = simplejson.dumps({"type": "test.echo", **body})
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = await producer.client.post("/v1/jobs", content=content, headers=headers)
    return str(answer.json()["jobId"])


async def retry(producer: Producer, job: str, body: Any = None, **headers: str) -> httpx2.Response:
    more: Mapping[str, Any] = {} if body is None else {"json": body}
    producer.relayed.clear()
    return await producer.client.post(f"/v1/jobs/{job}/retry", headers=headers, **more)


async def end(producer: Producer, **states: list[int]) -> None:
    """End items so, and have their batch follow."""
    for state, indexes in states.items():
        await producer.execute(
            "UPDATE filaviva.jobs SET state = 'running', attempt = attempt + 1"
            " WHERE item_index = ANY(:indexes) AND state = 'queued'",
            indexes=indexes,
        )
        await producer.execute(
            "UPDATE filaviva.jobs SET state = :state, finished_at = clock_timestamp(),"
            """ error = '{"class": "terminal"}', result = payload"""
            " WHERE item_index = ANY(:indexes) AND state = 'running'",
            indexes=indexes,
            state=state,
        )
    async with producer.engine.begin() as connection:
        found = await connection.exec_driver_sql("SELECT job_id FROM filaviva.batches")
        await follow(connection, found.scalars().all())


async def shown(producer: Producer, job: str) -> dict[str, Any]:
    found: dict[str, Any] = (await producer.client.get(f"/v1/jobs/{job}")).json()
    return found


async def items(producer: Producer, batch: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        await producer.client.get(f"/v1/jobs/{batch}/items", params={"limit": 100})
    ).json()["items"]
    return found


async def test_ten_items_with_three_failures_end_ten_of_ten(producer: Producer) -> None:
    batch = await submit(producer, items=[{"n": n} for n in range(10)])
    await end(producer, succeeded=[0, 1, 2, 4, 5, 7, 8], failed=[3, 6, 9])
    before = await items(producer, batch)
    assert (await shown(producer, batch))["progress"]["message"] == "7 of 10 completed"

    parts = [{"index": n, "data": {"n": 100 + n}} for n in (3, 6, 9)]
    answer = await retry(producer, batch, {"items": parts, "reason": "replaced"})

    assert answer.status_code == 202, answer.text
    assert answer.json() == {
        "jobId": batch,
        "status": "running",
        "statusUrl": f"/v1/jobs/{batch}",
        "retried": 3,
        "refused": [],
        "duplicate": False,
    }
    await end(producer, succeeded=[3, 6, 9])
    after = await items(producer, batch)
    whole = await shown(producer, batch)
    assert (whole["status"], whole["progress"]["message"]) == ("succeeded", "10 of 10 completed")
    assert [item["result"]["n"] for item in after] == [0, 1, 2, 103, 4, 5, 106, 7, 8, 109]
    assert [item for item in after if item["index"] not in (3, 6, 9)] == [
        item for item in before if item["index"] not in (3, 6, 9)
    ]
    assert [item["attempts"] for item in after if item["index"] in (3, 6, 9)] == [2, 2, 2]
    assert [item["jobId"] for item in after] == [item["jobId"] for item in before]


async def test_the_same_key_has_the_same_answer_and_repeats_nothing_again(
    producer: Producer,
) -> None:
    batch = await submit(producer, items=[{"n": n} for n in range(3)])
    await end(producer, succeeded=[0], failed=[1, 2])
    wish = {"items": [{"index": 0}, {"index": 1, "data": {"n": 7}}], "reason": "replaced"}
    key = {"Idempotency-Key": "once"}

    first, second = await asyncio.gather(*(retry(producer, batch, wish, **key) for _ in range(2)))
    await end(producer, failed=[1])
    third = await retry(producer, batch, wish, **key)
    assert third.json()["status"] == (await shown(producer, batch))["status"]
    other = await retry(producer, batch, {"items": [{"index": 2}]}, **key)
    unkeyed = await retry(producer, batch, wish)

    answers = [first.json(), second.json(), third.json()]
    assert [answer["retried"] for answer in answers] == [1, 1, 1]
    assert [answer["refused"] for answer in answers] == [[0], [0], [0]]
    assert sorted(answer["duplicate"] for answer in answers[:2]) == [False, True]
    assert (third.json()["duplicate"], third.headers["Idempotent-Replayed"]) == (True, "true")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert (unkeyed.status_code, unkeyed.json()["retried"]) == (202, 1)


async def test_a_refusal_leaves_its_key_free(producer: Producer) -> None:
    job = await submit(producer, data={"n": 1})
    key = {"Idempotency-Key": "once"}

    refused = await retry(producer, job, **key)
    await producer.execute("UPDATE filaviva.jobs SET state = 'failed'")
    done = await retry(producer, job, **key)

    assert (refused.status_code, done.status_code) == (409, 202)
    assert done.json()["duplicate"] is False


async def test_without_a_body_everything_that_failed_or_was_canceled_goes(
    producer: Producer,
) -> None:
    batch = await submit(producer, items=[{"n": n} for n in range(4)])
    await end(producer, succeeded=[0], failed=[1], canceled=[2])

    answer = await retry(producer, batch)

    assert answer.json()["retried"] == 2
    states = [item["status"] for item in await items(producer, batch)]
    assert states == ["succeeded", "queued", "queued", "queued"]
    assert len(producer.relayed) == 2


async def test_named_items_that_did_not_fail_are_refused_beside_those_that_did(
    producer: Producer,
) -> None:
    batch = await submit(producer, items=[{"n": n} for n in range(3)])
    await end(producer, succeeded=[0], failed=[1])

    mixed = await retry(producer, batch, {"items": [{"index": n} for n in range(3)]})
    again = await retry(producer, batch, {"items": [{"index": 1}]})

    assert (mixed.json()["retried"], mixed.json()["refused"]) == (1, [0, 2])
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


async def test_retries_at_once_send_each_item_back_once(producer: Producer) -> None:
    batch = await submit(producer, items=[{"n": n} for n in range(5)])
    await end(producer, succeeded=[0], failed=[1, 2, 3, 4])

    answers = await asyncio.gather(*(retry(producer, batch) for _ in range(8)))

    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 7]
    epochs = await producer.execute(
        "SELECT epoch FROM filaviva.jobs WHERE item_index IS NOT NULL ORDER BY item_index"
    )
    assert [row[0] for row in epochs] == [1, 2, 2, 2, 2]


async def test_one_job_goes_again_with_corrected_data_and_its_history(producer: Producer) -> None:
    job = await submit(producer, data={"n": 1})
    for state in ("running", "failed"):
        await producer.execute("UPDATE filaviva.jobs SET state = :state", state=state)

    answer = await retry(producer, job, {"data": {"n": 2}, "reason": "a typing error"})

    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    (row,) = await producer.execute("SELECT payload, revision, epoch FROM filaviva.jobs")
    assert tuple(row) == ({"n": 2}, 2, 2)
    told = (await producer.client.get(f"/v1/jobs/{job}/timeline")).json()["items"][-1]["data"]
    assert (told["cause"], told["reason"]) == ("retry", "a typing error")
    (entry,) = await producer.execute(
        "SELECT action, target, data FROM filaviva.audit_log WHERE action LIKE 'job.%'"
    )
    assert (entry.action, entry.target, entry.data["corrected"]) == ("job.retried", job, 1)


WRONG: list[tuple[Any, str]] = [
    ({"items": [{"index": 1, "data": {"n": "x"}}]}, "/items/0/data/n"),
    ({"items": [{"index": 1}, {"index": 7}]}, "/items/1/index"),
    ({"items": [{"index": 1}, {"index": 1}]}, "/items/1/index"),
    ({"items": [{"index": "1"}]}, "/items/0/index"),
    ({"items": [{"index": True}]}, "/items/0/index"),
    ({"items": [{"data": {"n": 1}}]}, "/items/0/index"),
    ({"items": [{"index": 1, "date": {}}]}, "/items/0/date"),
    ({"items": []}, "/items"),
    ({"data": {"n": 1}}, "/data"),
    ({"reason": ""}, "/reason"),
    ({"all": True}, "/all"),
    ([], ""),
    ("retry", ""),
    ({"items": [{"index": 10**30}]}, "/items/0/index"),
    ({"items": [{"index": -1}]}, "/items/0/index"),
    ({"items": [{"index": 1, "data": {"text": "\0"}}]}, "/items/0/data/text"),
    ({"items": [{"index": 1, "data": None}]}, "/items/0/data"),
    ({"items": [{"index": 1, "data": {"text": "x" * 300_000}}]}, "/items/0/data"),
]


async def test_a_wrong_wish_is_refused_with_a_pointer_and_changes_nothing(
    producer: Producer, subtests: pytest.Subtests
) -> None:
    batch = await submit(producer, items=[{"n": n} for n in range(2)])
    await end(producer, failed=[0, 1])

    for body, pointer in WRONG:
        with subtests.test(str(body)[:60]):
            answer = await retry(producer, batch, body)

            assert answer.status_code == 422, answer.text
            assert answer.json()["errors"][0]["pointer"] == pointer
    assert {item["status"] for item in await items(producer, batch)} == {"failed"}


async def test_only_who_may_submit_that_type_may_repeat(producer: Producer) -> None:
    batch = await submit(producer, items=[{"n": 1}])
    await end(producer, failed=[0])

    reader = await retry(producer, batch, **await producer.as_key(scopes=["jobs:read"]))
    stranger = await retry(producer, batch, **await producer.as_key(tenant="other"))
    other = await retry(producer, batch, **await producer.as_key(types=["test.fetch"]))

    assert [one.status_code for one in (reader, stranger, other)] == [403, 404, 404]


async def test_what_has_not_failed_cannot_be_repeated(producer: Producer) -> None:
    job = await submit(producer, data={"n": 1})

    waiting = await retry(producer, job)
    part = await retry(producer, job, {"items": [{"index": 0}]})

    assert (waiting.status_code, waiting.json()["code"]) == (409, "conflict")
    assert (part.status_code, part.json()["errors"][0]["pointer"]) == (422, "/items")


async def test_a_canceled_batch_can_go_on(producer: Producer) -> None:
    batch = await submit(producer, items=[{"n": 1}, {"n": 2}], concurrency=1)
    canceled = await producer.client.post(f"/v1/jobs/{batch}/cancel")
    assert canceled.json()["status"] == "canceled"

    answer = await retry(producer, batch)

    assert (answer.json()["status"], answer.json()["retried"]) == ("running", 2)
    assert len(producer.relayed) == 1, "one at a time"
    await end(producer, succeeded=[0])
    await end(producer, succeeded=[1])
    assert (await shown(producer, batch))["status"] == "succeeded"


async def test_a_batch_that_is_being_canceled_is_not_repeated(producer: Producer) -> None:
    batch = await submit(producer, items=[{"n": 1}, {"n": 2}])
    await end(producer, failed=[0])
    await producer.execute("UPDATE filaviva.jobs SET state = 'running' WHERE item_index = 1")
    await producer.client.post(f"/v1/jobs/{batch}/cancel")

    assert (await retry(producer, batch)).status_code == 409
