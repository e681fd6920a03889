"""Reading jobs: their present state, their lists, waiting for a change, one tenant's only."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from filaviva.http import pages
from filaviva.notify import Notifier
from fixtures.producer import Producer
from fixtures.waiting import until

LISTS = ("attempts", "steps", "llm-calls", "timeline")


async def submitted(producer: Producer, key: str = "a", **changes: Any) -> str:
    """Submit a job and give its address."""
    answer = await producer.submit(key, **changes)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["statusUrl"])


async def set_state(producer: Producer, *states: str, **more: str) -> None:
    """Bring every job through these states."""
    for state in states:
        await producer.execute("UPDATE filaviva.jobs SET state = :state", state=state)
    for column, value in more.items():
        await producer.execute(f"UPDATE filaviva.jobs SET {column} = {value}")


async def test_a_new_job_looks_like_this(producer: Producer) -> None:
    address = await submitted(producer, labels={"batch": "one"}, subject="ana", maxAttempts=4)

    answer = await producer.client.get(address)

    assert answer.status_code == 200
    job = answer.json()
    created = job.pop("createdAt")
    assert job["links"].pop("status").startswith(f"/jobs/{job['jobId']}?")
    assert created.endswith("Z")
    assert job == {
        "jobId": address.rpartition("/")[2],
        "type": "test.echo",
        "version": 1,
        "status": "queued",
        "attempt": 0,
        "maxAttempts": 4,
        "progress": None,
        "notBefore": None,
        "deadline": None,
        "costUsd": "0",
        "result": None,
        "error": None,
        "startedAt": None,
        "finishedAt": None,
        "labels": {"batch": "one"},
        "subject": "ana",
        "submittedBy": producer.key.split("_")[1],
        "parkedReason": None,
        "waitingFor": "a free worker",
        "parentId": None,
        "itemIndex": None,
        "removed": [],
        "erasedAt": None,
        "links": {"self": address, **{part: f"{address}/{part}" for part in (*LISTS, "events")}},
    }


async def test_a_result_keeps_every_digit(producer: Producer) -> None:
    address = await submitted(producer)
    digits = "0.123456789012345678901234567891"
    await set_state(
        producer,
        "running",
        "succeeded",
        result=f"""'{{"sum": {digits}, "n": 1180591620717411303424}}'""",
        cost_usd="0.000000120",
        progress="""'{"done": 7, "total": 10, "message": "read"}'""",
    )

    answer = await producer.client.get(address)

    assert f'"result":{{"n": 1180591620717411303424, "sum": {digits}}}' in answer.text
    job = answer.json()
    assert job["status"] == "succeeded"
    assert job["costUsd"] == "0.000000120"
    assert job["progress"] == {
        "total": 10,
        "succeeded": 7,
        "failed": 0,
        "canceled": 0,
        "running": 0,
        "queued": 0,
        "message": "read",
    }


async def test_an_attempt_that_is_being_decided_is_still_running(producer: Producer) -> None:
    address = await submitted(producer)
    await set_state(producer, "running", lease_owner="'decision'")

    assert (await producer.client.get(address)).json()["status"] == "running"


async def test_an_unchanged_job_is_304(producer: Producer) -> None:
    address = await submitted(producer)
    first = await producer.client.get(address)
    tag = first.headers["etag"]

    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await producer.client.get(address, headers={"If-None-Match": known})
        assert again.status_code == 304
        assert again.content == b""
        assert again.headers["etag"] == tag

    await set_state(producer, "running")
    changed = await producer.client.get(address, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


async def change_while(
    producer: Producer, request: "asyncio.Task[Any]", change: Callable[[], Any]
) -> tuple[Any, float]:
    """Make a change once somebody waits for it; give the answer and its delay."""
    await until(lambda: producer.watch.waiting)
    assert not request.done()
    await change()
    changed = time.monotonic()
    return await request, time.monotonic() - changed


async def test_waiting_without_a_tag_ends_when_the_job_is_final(producer: Producer) -> None:
    address = await submitted(producer)
    request = asyncio.create_task(producer.client.get(f"{address}?wait=20"))

    answer, delay = await change_while(
        producer, request, lambda: set_state(producer, "running", "succeeded")
    )

    assert answer.json()["status"] == "succeeded"
    assert delay < 2


async def test_waiting_with_a_tag_ends_at_the_first_change(producer: Producer) -> None:
    address = await submitted(producer)
    tag = (await producer.client.get(address)).headers["etag"]
    request = asyncio.create_task(
        producer.client.get(f"{address}?wait=20", headers={"If-None-Match": tag})
    )

    answer, _ = await change_while(producer, request, lambda: set_state(producer, "running"))

    assert answer.status_code == 200
    assert answer.json()["status"] == "running"


async def test_a_change_that_nobody_sees_does_not_end_the_wait(producer: Producer) -> None:
    address = await submitted(producer)
    tag = (await producer.client.get(address)).headers["etag"]
    request = asyncio.create_task(
        producer.client.get(f"{address}?wait=2", headers={"If-None-Match": tag})
    )

    await change_while(producer, request, lambda: set_state(producer, issue="issue + 1"))

    assert request.result().status_code == 304


async def test_waiting_for_a_final_job_ends_at_once(producer: Producer) -> None:
    address = await submitted(producer)
    await set_state(producer, "canceled")

    answer = await asyncio.wait_for(producer.client.get(f"{address}?wait=60"), timeout=5)

    assert answer.json()["status"] == "canceled"
    assert "retry-after" not in answer.headers


async def test_waiting_in_vain_ends_with_the_present_state(producer: Producer) -> None:
    address = await submitted(producer)
    tag = (await producer.client.get(address)).headers["etag"]

    plain = await producer.client.get(f"{address}?wait=0.3")
    known = await producer.client.get(f"{address}?wait=0.3", headers={"If-None-Match": tag})

    assert (plain.status_code, plain.json()["status"]) == (200, "queued")
    assert known.status_code == 304


async def test_a_notification_ends_the_wait_before_the_poll(producer: Producer) -> None:
    address = await submitted(producer)
    notifier = Notifier(producer.engine)
    delays = []
    for turn in range(5):
        tag = (await producer.client.get(address)).headers["etag"]
        request = asyncio.create_task(
            producer.client.get(f"{address}?wait=20", headers={"If-None-Match": tag})
        )
        await until(lambda: producer.watch.waiting)

        async def change(turn: int = turn) -> None:
            await set_state(producer, attempt=str(turn + 1))
            notifier.changed([UUID(address.rpartition("/")[2])])
            await notifier.step()

        _, delay = await change_while(producer, request, change)
        delays.append(delay)

    assert sorted(delays)[2] < 0.2


async def test_many_who_wait_share_one_question(producer: Producer) -> None:
    addresses = [await submitted(producer, f"k{n}") for n in range(30)]
    requests = [
        asyncio.create_task(producer.client.get(f"{address}?wait=20")) for address in addresses
    ]
    await until(lambda: len(producer.watch.waiting) == 30)

    await set_state(producer, "canceled")

    answers = await asyncio.gather(*requests)
    assert {answer.json()["status"] for answer in answers} == {"canceled"}
    # Five connections served thirty who wait, and others besides.
    assert not producer.watch.waiting


async def test_waiting_survives_a_lost_database(producer: Producer) -> None:
    address = await submitted(producer)
    request = asyncio.create_task(producer.client.get(f"{address}?wait=20"))
    await until(lambda: producer.watch.waiting)
    await producer.lose_database()
    await set_state(producer, "canceled")
    await asyncio.wait({request}, timeout=1.5)
    assert not request.done()

    await producer.find_database()

    assert (await request).json()["status"] == "canceled"


async def test_lists_are_newest_first_and_in_pages(producer: Producer) -> None:
    addresses = [await submitted(producer, f"k{n}") for n in range(7)]
    seen: list[str] = []
    url = "/v1/jobs?limit=3"
    pages = 0
    while url:
        answer = await producer.client.get(url)
        page = answer.json()
        seen += [job["links"]["self"] for job in page["items"]]
        pages += 1
        link = answer.headers.get("link")
        assert (link is None) == (page["next"] is None)
        url = link.partition(">")[0].lstrip("<") if link else ""

    assert seen == addresses[::-1]
    assert pages == 3


async def test_pages_stay_in_place_while_jobs_arrive(producer: Producer) -> None:
    addresses = [await submitted(producer, f"k{n}") for n in range(4)]
    first = (await producer.client.get("/v1/jobs?limit=2")).json()
    await submitted(producer, "later")

    second = (await producer.client.get(f"/v1/jobs?limit=2&cursor={first['next']}")).json()

    assert [job["links"]["self"] for job in second["items"]] == [addresses[1], addresses[0]]
    assert second["next"] is None


async def test_a_cursor_belongs_to_its_filters(producer: Producer) -> None:
    for n in range(3):
        await submitted(producer, f"k{n}")
    page = (await producer.client.get("/v1/jobs?limit=1")).json()

    answer = await producer.client.get(f"/v1/jobs?status=failed&cursor={page['next']}")

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor")


async def test_lists_are_filtered(producer: Producer) -> None:
    one = await submitted(producer, "1", labels={"batch": "x", "who": "ana"})
    two = await submitted(producer, "2", labels={"batch": "x"})
    other = {"type": "test.fetch", "version": 1, "data": {"url": "https://example.com/"}}
    three = await submitted(producer, "3", **other)
    await producer.execute(
        "UPDATE filaviva.jobs SET state = 'canceled' WHERE idempotency_key = '2'"
    )

    async def listed(query: str) -> set[str]:
        answer = await producer.client.get(f"/v1/jobs?{query}")
        assert answer.status_code == 200, answer.text
        return {job["links"]["self"] for job in answer.json()["items"]}

    assert await listed("") == {one, two, three}
    assert await listed("status=canceled") == {two}
    assert await listed("status=canceled&status=queued") == {one, two, three}
    assert await listed("type=test.fetch") == {three}
    assert await listed("type=nonsense") == set()
    assert await listed("label.batch=x") == {one, two}
    assert await listed("label.batch=x&label.who=ana") == {one}
    assert await listed("label.batch=y") == set()
    assert await listed("label.batch=x&status=canceled") == {two}
    assert await listed("parent=019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55") == set()


async def test_lists_leave_results_out(producer: Producer) -> None:
    await submitted(producer)
    await set_state(producer, "running", "succeeded", result="'[1]'")

    page = (await producer.client.get("/v1/jobs")).json()

    assert "result" not in page["items"][0]


async def test_another_tenants_jobs_do_not_exist(
    producer: Producer, subtests: pytest.Subtests
) -> None:
    address = await submitted(producer)
    foreign = await producer.as_key(tenant="other")

    for path in (address, *(f"{address}/{part}" for part in LISTS), f"{address}?wait=1"):
        with subtests.test(path):
            answer = await producer.client.get(path, headers=foreign)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    page = await producer.client.get("/v1/jobs", headers=foreign)
    assert page.json()["items"] == []
    same_key = await producer.client.post(
        "/v1/jobs",
        json={"type": "test.echo", "data": {"n": 1}},
        headers={**foreign, "Idempotency-Key": "a"},
    )
    assert same_key.json()["duplicate"] is False


async def test_a_key_for_other_types_sees_only_those(producer: Producer) -> None:
    address = await submitted(producer)
    limited = await producer.as_key(types=["test.fetch"])

    assert (await producer.client.get(address, headers=limited)).status_code == 404
    assert (await producer.client.get("/v1/jobs", headers=limited)).json()["items"] == []


async def test_what_happened_is_told_in_order(producer: Producer) -> None:
    address = await submitted(producer)
    job_id = address.rpartition("/")[2]
    await producer.execute(
        """INSERT INTO filaviva.attempts (job_id, number, fence, worker, started_at, finished_at,
            outcome, error_class, error_code, error_message, pause_seconds, step, cost_usd) VALUES
        (:id, 1, 1, 'w1', '2026-11-30T10:00:00Z', '2026-11-30T10:00:01Z', 'retry', 'rate_limited',
            'RateLimitError', 'slow down', 2.5, 'read', 0.001),
        (:id, 2, 2, 'w2', '2026-11-30T10:00:05Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0)""",
        id=job_id,
    )
    await producer.execute(
        """INSERT INTO filaviva.steps (job_id, revision, name, attempt, state, tool, cost_usd,
            started_at, finished_at) VALUES
        (:id, 1, 'read', 2, 'running', 'openai', 0.001, '2026-11-30T10:00:06Z', NULL),
        (:id, 1, 'fetch', 1, 'succeeded', NULL, 0, '2026-11-30T10:00:00Z',
            '2026-11-30T10:00:01Z')""",
        id=job_id,
    )
    await producer.execute(
        """INSERT INTO filaviva.llm_calls (job_id, attempt, step, provider, model, input_tokens,
            output_tokens, cost_usd, price_source) VALUES
        (:id, 1, 'read', 'openai', 'gpt', 100, 20, 0.0010, 'genai-prices'),
        (:id, 2, 'read', 'local', 'own', 100, 20, NULL, NULL)""",
        id=job_id,
    )
    await producer.execute(
        "INSERT INTO filaviva.job_events (job_id, kind, data) VALUES (:id, 'state',"
        """ '{"status": "running"}')""",
        id=job_id,
    )

    async def listed(part: str) -> list[dict[str, Any]]:
        answer = await producer.client.get(f"{address}/{part}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["next"] is None
        return list(answer.json()["items"])

    attempts = await listed("attempts")
    assert attempts[0] == {
        "number": 1,
        "worker": "w1",
        "startedAt": "2026-11-30T10:00:00.000000Z",
        "finishedAt": "2026-11-30T10:00:01.000000Z",
        "outcome": "retry",
        "error": {"class": "rate_limited", "code": "RateLimitError", "message": "slow down"},
        "step": "read",
        "pauseSeconds": 2.5,
        "costUsd": "0.001",
    }
    assert (attempts[1]["number"], attempts[1]["outcome"], attempts[1]["error"]) == (2, None, None)
    assert [step["name"] for step in await listed("steps")] == ["fetch", "read"]
    calls = await listed("llm-calls")
    assert [call["costUsd"] for call in calls] == ["0.0010", None]
    assert (calls[0]["inputTokens"], calls[0]["priceSource"]) == (100, "genai-prices")
    timeline = await listed("timeline")
    assert [entry["data"] for entry in timeline] == [
        {"status": "queued", "reason": "submitted"},
        {"status": "running"},
    ]
    assert timeline[0]["sequence"] < timeline[1]["sequence"]
    assert {entry["kind"] for entry in timeline} == {"state"}


async def test_parts_come_in_pages(producer: Producer) -> None:
    address = await submitted(producer)
    await producer.execute(
        "INSERT INTO filaviva.job_events (job_id, kind) SELECT :id, n::text"
        " FROM generate_series(1, 4) AS n",
        id=address.rpartition("/")[2],
    )
    first = (await producer.client.get(f"{address}/timeline?limit=3")).json()
    rest = await producer.client.get(f"{address}/timeline?limit=3&cursor={first['next']}")
    wrong = await producer.client.get(f"{address}/attempts?cursor={first['next']}")

    assert [entry["kind"] for entry in first["items"]] == ["state", "1", "2"]
    assert [entry["kind"] for entry in rest.json()["items"]] == ["3", "4"]
    assert wrong.status_code == 422


async def test_a_cursor_beyond_every_row_is_an_empty_page_or_refused(producer: Producer) -> None:
    address = await submitted(producer)
    for part in LISTS:
        path = f"{address}/{part}"
        forged = pages.cursor("9" * 18, {"list": path})
        answer = await producer.client.get(f"{path}?cursor={forged}")
        assert answer.status_code in (200, 422), f"{part}: {answer.text}"
    path = f"{address}/items"
    forged = pages.cursor("9" * 18, {"list": path, "statuses": ()})
    answer = await producer.client.get(f"{path}?cursor={forged}")
    assert answer.status_code in (200, 422), answer.text


async def test_answers_are_as_openapi_says(producer: Producer) -> None:
    address = await submitted(producer)
    api = (await producer.client.get("/openapi.json")).json()
    schemas = api["components"]["schemas"]
    job = (await producer.client.get(address)).json()
    page = (await producer.client.get("/v1/jobs")).json()

    assert set(job) == set(schemas["Job"]["properties"])
    assert set(page["items"][0]) == set(schemas["JobSummary"]["properties"])
    assert json.dumps(api).count('"#/components/schemas/Problem"') > 20
