"""POST /v1/jobs and everything that can be wrong with it."""

import asyncio
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx2
import pytest

from filaviva import canonical
from fixtures.producer import Producer
from fixtures.waiting import until

JSON = {"Content-Type": "application/json"}


async def post(
    producer: Producer, body: bytes | str, *, key: str = "k", **headers: str
) -> httpx2.Response:
    """Send a body as it is."""
    sent = {**JSON, "Idempotency-Key": key, **headers}
    return await producer.client.post("/v1/jobs", content=body, headers=sent)


def refused(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is this problem, and give it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["code"] == code, problem
    assert problem["requestId"] == answer.headers["x-request-id"]
    assert problem["title"]
    assert problem["detail"]
    return problem


async def nothing_is_stored(producer: Producer) -> bool:
    (found,) = await producer.execute(
        "SELECT (SELECT count(*) FROM filaviva.jobs) + (SELECT count(*) FROM filaviva.outbox)"
    )
    return bool(found[0] == 0)


async def test_a_submission_is_accepted(producer: Producer) -> None:
    answer = await producer.submit("a", labels={"batch": "one"}, subject="ana")

    assert answer.status_code == 202
    body = answer.json()
    address = f"/v1/jobs/{body['jobId']}"
    assert body == {
        "jobId": body["jobId"],
        "status": "queued",
        "statusUrl": address,
        "eventsUrl": f"{address}/events",
        "cancelUrl": f"{address}/cancel",
        "statusPageUrl": body["statusPageUrl"],
        "duplicate": False,
    }
    assert answer.headers["location"] == address
    assert answer.headers["retry-after"] == "1"
    assert "idempotent-replayed" not in answer.headers
    assert [str(row.job_id) for row in producer.relayed] == [body["jobId"]]


async def test_defaults_come_from_the_contract(producer: Producer) -> None:
    answer = await producer.client.post(
        "/v1/jobs",
        json={"type": "test.fetch", "data": {"url": "https://example.com/", "depth": 1}},
        headers={"Idempotency-Key": "a"},
    )

    assert answer.status_code == 202
    (job,) = await producer.execute(
        "SELECT version, queue, max_attempts, priority, submitted_by FROM filaviva.jobs"
    )
    assert tuple(job)[:4] == (2, "tests", 5, 4)
    assert job.submitted_by == producer.key.split("_")[1]


async def test_the_same_key_and_content_is_the_same_job(producer: Producer) -> None:
    first = await producer.submit("a")

    # The order of members and white space are no content.
    again = await post(producer, '{ "data": {"n": 1},\n "type": "test.echo" }', key='"a"')

    assert again.status_code == 202
    assert again.json() == {**first.json(), "duplicate": True}
    assert again.headers["idempotent-replayed"] == "true"


async def test_a_duplicate_shows_the_present_status(producer: Producer) -> None:
    await producer.submit("a")
    await producer.execute("UPDATE filaviva.jobs SET state = 'running'")
    await producer.execute("UPDATE filaviva.jobs SET state = 'succeeded'")

    again = await producer.submit("a")

    assert again.json()["status"] == "succeeded"


async def test_fifty_identical_submissions_at_once_are_one_job(producer: Producer) -> None:
    answers = await asyncio.gather(*(producer.submit("same") for _ in range(50)))

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    assert sum(not answer.json()["duplicate"] for answer in answers) == 1
    assert len(await producer.execute("SELECT id FROM filaviva.jobs")) == 1
    assert len(producer.relayed) == 1
    other = await producer.submit("same", data={"n": 2})
    refused(other, 422, "idempotency_key_reused")


async def test_an_accepted_job_stays_the_same_when_its_contract_is_gone(
    producer: Producer,
) -> None:
    first = await producer.submit("a")
    await producer.execute("DELETE FROM filaviva.contracts")
    await producer.registry.refresh()

    again = await producer.submit("a")
    other = await producer.submit("b")

    assert again.json()["jobId"] == first.json()["jobId"]
    refused(other, 422, "unknown_contract")


async def test_without_a_key_nothing_is_stored(producer: Producer) -> None:
    answer = await producer.client.post("/v1/jobs", json={"type": "test.echo", "data": {}})

    refused(answer, 400, "idempotency_key_missing")
    assert await nothing_is_stored(producer)


async def test_a_strange_key_is_refused(producer: Producer, subtests: pytest.Subtests) -> None:
    for key in ("x" * 256, '"a', "a b", "ä", '"a"b', '"' + "x" * 256 + '"'):
        with subtests.test(key[:20]):
            headers: Any = {"Idempotency-Key": key.encode("latin-1")}
            answer = await producer.client.post("/v1/jobs", json={}, headers=headers)

            refused(answer, 400, "idempotency_key_invalid")


async def test_an_unknown_type_names_what_exists(producer: Producer) -> None:
    problem = refused(await producer.submit("a", type="test.ecco"), 422, "unknown_contract")

    assert "test.ecco" in problem["detail"]
    assert "test.echo, test.fetch" in problem["detail"]
    assert problem["errors"][0]["pointer"] == "/type"
    assert await nothing_is_stored(producer)


async def test_an_unknown_version_names_what_exists(producer: Producer) -> None:
    answer = await producer.submit("a", type="test.fetch", version=3)

    problem = refused(answer, 422, "unknown_contract")
    assert "1, 2" in problem["detail"]
    assert problem["errors"][0]["pointer"] == "/version"


async def test_invalid_data_is_pointed_at(producer: Producer) -> None:
    answer = await producer.submit(
        "a", type="test.fetch", data={"url": 7, "deph": 1, "a/b~c": None}
    )

    problem = refused(answer, 422, "invalid_data")
    pointers = {error["pointer"] for error in problem["errors"]}
    assert pointers == {"/data/url", "/data/depth", "/data/deph", "/data/a~1b~0c"}
    assert await nothing_is_stored(producer)


WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"data": ...}, "/data"),
    ({"type": ...}, "/type"),
    ({"type": 7}, "/type"),
    ({"type": ""}, "/type"),
    ({"version": 0}, "/version"),
    ({"version": 1.5}, "/version"),
    ({"version": True}, "/version"),
    ({"version": None}, "/version"),
    ({"version": 2**31}, "/version"),
    ({"priority": "urgent"}, "/priority"),
    ({"maxAttempts": 0}, "/maxAttempts"),
    ({"maxAttempts": 101}, "/maxAttempts"),
    ({"maxAttempts": 2**70}, "/maxAttempts"),
    ({"runAt": "tomorrow"}, "/runAt"),
    ({"runAt": "2026-11-30"}, "/runAt"),
    ({"runAt": "2026-11-30T10:00:00"}, "/runAt"),
    ({"runAt": "2026-13-30T10:00:00Z"}, "/runAt"),
    ({"runAt": "0001-01-01T00:00:00+14:00"}, "/runAt"),
    ({"runAt": 1796040000}, "/runAt"),
    ({"deadline": "2026-11-30T10:00:60Z"}, "/deadline"),
    ({"runAt": "2030-01-02T00:00:00Z", "deadline": "2030-01-02T00:00:00+00:00"}, "/deadline"),
    ({"labels": []}, "/labels"),
    ({"labels": {"a": 1}}, "/labels/a"),
    ({"labels": {"a": "x" * 257}}, "/labels/a"),
    ({"labels": {"": "x"}}, "/labels"),
    ({"labels": {"a b": "x"}}, "/labels"),
    ({"labels": {f"l{n}": "x" for n in range(17)}}, "/labels"),
    ({"subject": ""}, "/subject"),
    ({"subject": "x" * 257}, "/subject"),
    ({"items": [{"n": 1}]}, "/data"),
    ({"budgetUsd": "1.00"}, "/budgetUsd"),
    ({"callbackUrl": "ftp://example.com"}, "/callbackUrl"),
    ({"max_attempts": 3}, "/max_attempts"),
    ({"a/b": 3}, "/a~1b"),
]


async def test_a_wrong_field_is_pointed_at(producer: Producer, subtests: pytest.Subtests) -> None:
    for changes, pointer in WRONG_FIELDS:
        body = {"type": "test.echo", "data": {"n": 1}, **changes}
        body = {name: value for name, value in body.items() if value is not ...}
        with subtests.test(str(changes)[:80]):
            answer = await post(producer, json.dumps(body))

            problem = refused(answer, 422, "invalid_request")
            assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert await nothing_is_stored(producer)


async def test_of_very_many_flaws_a_hundred_are_told(producer: Producer) -> None:
    many = {"x" * 1500 + str(n): 1 for n in range(500)}

    for path in ("/v1/jobs", "/v1/schedules", "/v1/events"):
        answer = await producer.client.post(path, json=many, headers={"Idempotency-Key": "a"})

        assert answer.status_code == 422
        assert len(answer.json()["errors"]) <= 100
        assert len(answer.content) < 250_000


async def test_what_is_not_supported_yet_says_so(producer: Producer) -> None:
    problem = refused(await producer.submit("a", budgetUsd="1"), 422, "invalid_request")

    assert "not supported by this release" in problem["errors"][0]["detail"]


BROKEN_BODIES = [
    (b"", 400),
    (b"{", 400),
    (b"nonsense", 400),
    (b'{"type": "test.echo", "data": {"n": NaN}}', 400),
    (b'{"type": "test.echo", "data": {"n": Infinity}}', 400),
    (b'{"type": "test.echo", "type": "test.echo", "data": {}}', 400),
    (b'{"type": "test.echo", "data": {"text": "\xff\xfe"}}', 400),
    (b'{"type": "test.echo", "data": {"n": 1e9999}}', 400),
    (b'{"type": "test.echo", "data": {"n": ' + b"9" * 5000 + b"}}", 400),
    (b"[" * 100_000, 400),
    (b'{"a":' * 50_000, 400),
    (b'{"type": "test.echo", "data": ' + b"[" * 101 + b"]" * 101 + b"}", 400),
    (b'{"type": "test.echo", "data": {"text": "\\u0000"}}', 422),
    (b'{"type": "test.echo", "data": {"text": "\\ud800"}}', 422),
    (b'{"type": "test.echo", "data": {"\\u0000": 1}}', 422),
    (b'{"type": "test.echo", "data": {}, "subject": "\\u0000"}', 422),
    (b'{"type": "test\\udfff.echo", "data": {}}', 422),
    (b"[]", 422),
    (b"null", 422),
    (b"7", 422),
]


async def test_broken_bodies_are_refused_and_the_process_lives(
    producer: Producer, subtests: pytest.Subtests
) -> None:
    for body, status in BROKEN_BODIES:
        with subtests.test(repr(body[:60])):
            answer = await post(producer, body)

            refused(answer, status, answer.json()["code"])
    assert await nothing_is_stored(producer)
    assert (await producer.submit("next")).status_code == 202


async def test_another_content_type_is_refused(
    producer: Producer, subtests: pytest.Subtests
) -> None:
    for headers in (
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Encoding": "gzip"},
    ):
        with subtests.test(str(headers)):
            answer = await post(producer, b'{"type": "test.echo", "data": {}}', **headers)

            refused(answer, 415, "unsupported_media_type")


async def test_utf_8_is_the_charset(producer: Producer) -> None:
    answer = await post(
        producer,
        '{"type": "test.echo", "data": {"text": "São João 🎉"}}'.encode(),
        **{"Content-Type": "application/json; charset=UTF-8"},
    )

    assert answer.status_code == 202
    (stored,) = await producer.execute("SELECT payload->>'text' FROM filaviva.jobs")
    assert stored[0] == "São João 🎉"


async def test_large_data_is_refused(producer: Producer) -> None:
    problem = refused(
        await producer.submit("a", data={"text": "x" * 262_144}), 413, "data_too_large"
    )

    assert problem["errors"][0]["pointer"] == "/data"
    assert (await producer.submit("b", data={"text": "x" * 262_000})).status_code == 202


async def test_a_ten_megabyte_body_gets_its_413(producer: Producer) -> None:
    answer = await post(producer, b" " * 10_000_000)

    refused(answer, 413, "body_too_large")
    assert answer.headers["connection"] == "close"
    assert (await producer.submit("next")).status_code == 202


async def test_a_chunked_ten_megabyte_body_gets_its_413(producer: Producer) -> None:
    async def chunks() -> Any:
        for _ in range(100):
            yield b" " * 100_000

    answer = await producer.client.post(
        "/v1/jobs", content=chunks(), headers={**JSON, "Idempotency-Key": "a"}
    )

    refused(answer, 413, "body_too_large")


async def test_megabytes_are_read_and_checked_beside_the_event_loop(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def spied(work: Any) -> Any:
        def spying(*arguments: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*arguments)

        return spying

    for name in ("parse", "fingerprint"):
        monkeypatch.setattr(canonical, name, spied(getattr(canonical, name)))

    answer = await producer.submit("a", data={"more": ["x" * 9] * 50_000})

    refused(answer, 413, "data_too_large")
    assert len(threads) == 2, "for an earlier job, what was asked is compared"
    assert threading.main_thread() not in threads


async def test_a_small_chunked_body_is_read(producer: Producer) -> None:
    async def chunks() -> Any:
        yield b'{"type": "test.echo",'
        yield b' "data": {"n": 1}}'

    answer = await producer.client.post(
        "/v1/jobs", content=chunks(), headers={**JSON, "Idempotency-Key": "a"}
    )

    assert answer.status_code == 202


def head(producer: Producer, length: int, *more: str) -> bytes:
    """Give the head of a submission whose body has this length."""
    lines = (
        "POST /v1/jobs HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {producer.key}",
        "Idempotency-Key: a",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        *more,
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


async def test_an_endless_body_is_cut_off(producer: Producer) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", producer.port)
    writer.write(head(producer, 99_999_999_999))
    sent = 0

    async def send() -> None:
        nonlocal sent
        while sent < 100_000_000:
            writer.write(b" " * 100_000)
            await writer.drain()
            sent += 100_000

    with pytest.raises(ConnectionError):
        await send()
    assert sent < 60_000_000
    writer.close()


async def test_a_client_that_asks_first_is_told_at_once(producer: Producer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", producer.port)
    writer.write(head(producer, 9_999_999, "Expect: 100-continue"))

    answer = await asyncio.wait_for(reader.read(), timeout=3)

    assert answer.startswith(b"HTTP/1.1 413 ")
    writer.close()


async def test_a_body_that_never_comes_is_given_up(producer: Producer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", producer.port)
    writer.write(head(producer, 10))

    answer = await asyncio.wait_for(reader.read(), timeout=15)

    assert answer.startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_client_that_leaves_harms_nobody(producer: Producer) -> None:
    for sent in (
        b"POST /v1/jobs HT",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"\x16\x03\x01\x00\xff\r\n",
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", producer.port)
        writer.write(sent)
        await writer.drain()
        writer.close()

    assert (await producer.submit("next")).status_code == 202


async def test_numbers_keep_every_digit(producer: Producer) -> None:
    digits = "0.123456789012345678901234567891"
    body = (
        f'{{"type": "test.echo", "data": {{"n": 1180591620717411303424, "more": [1e400, {digits},'
        " 1.0, -0, 100]}}"
    )

    assert (await post(producer, body)).status_code == 202

    (stored,) = await producer.execute("SELECT payload::text FROM filaviva.jobs")
    kept = json.loads(stored[0], parse_float=Decimal)
    assert kept["n"] == 2**70
    assert kept["more"][0] == Decimal("1e400")
    assert str(kept["more"][1]) == digits


async def test_other_digits_are_other_content(producer: Producer) -> None:
    first = '{"type": "test.echo", "data": {"n": 0.1000000000000000000001}}'
    second = '{"type": "test.echo", "data": {"n": 0.1000000000000000000002}}'
    await post(producer, first)

    refused(await post(producer, second), 422, "idempotency_key_reused")
    assert (await post(producer, first)).json()["duplicate"] is True


async def test_priorities_times_and_attempts_are_stored(producer: Producer) -> None:
    for key, priority in (("h", "high"), ("n", "normal"), ("l", "low")):
        answer = await producer.submit(
            key,
            priority=priority,
            runAt="2030-01-02T03:04:05.5+02:00",
            deadline="2030-01-03T00:00:00Z",
            maxAttempts=7,
        )
        assert answer.status_code == 202

    found = await producer.execute(
        "SELECT priority, max_attempts, extract(epoch FROM not_before)::text AS start,"
        " extract(epoch FROM deadline)::text AS finish FROM filaviva.jobs ORDER BY priority DESC"
    )
    assert [row.priority for row in found] == [8, 4, 0]
    assert {tuple(row)[1:] for row in found} == {(7, "1893546245.500000", "1893628800.000000")}
    assert all((row.pause_seconds or 0) > 1000 for row in producer.relayed)
    assert [row.priority for row in producer.relayed] == [8, 4, 0]


async def test_trace_and_request_id_travel_with_the_job(producer: Producer) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = b'{"type": "test.echo", "data": {}}'

    answer = await post(producer, body, traceparent=trace, **{"X-Request-Id": "order-17"})

    assert answer.headers["x-request-id"] == "order-17"
    (row,) = producer.relayed
    assert (row.traceparent, row.correlation_id) == (trace, "order-17")


async def test_a_strange_request_id_is_replaced(producer: Producer) -> None:
    answer = await producer.client.get("/v1/jobs", headers={"X-Request-Id": "a b<script>"})

    assert answer.status_code == 200
    assert len(answer.headers["x-request-id"]) == 32


async def test_without_authorization_it_is_401(producer: Producer) -> None:
    bare = httpx2.AsyncClient(base_url=producer.url)
    wrong = ("", "Bearer", "Bearer x", "Basic eDp5", f"Bearer {producer.key[:-1]}0x")
    for value in wrong:
        answer = await bare.post("/v1/jobs", json={}, headers={"Authorization": value})
        refused(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    refused(await bare.get("/v1/jobs"), 401, "unauthenticated")
    await bare.aclose()


async def test_a_key_without_the_scope_is_403(producer: Producer) -> None:
    reader = await producer.as_key(scopes=["jobs:read"])
    writer = await producer.as_key(scopes=["jobs:write"])

    answer = await producer.client.post(
        "/v1/jobs", json={}, headers={**reader, "Idempotency-Key": "a"}
    )
    assert "jobs:write" in refused(answer, 403, "forbidden")["detail"]
    answer = await producer.client.get("/v1/jobs", headers=writer)
    assert "jobs:read" in refused(answer, 403, "forbidden")["detail"]


async def test_a_key_for_other_types_is_403(producer: Producer) -> None:
    limited = await producer.as_key(types=["test.fetch"])
    body = {"type": "test.echo", "data": {}}

    answer = await producer.client.post(
        "/v1/jobs", json=body, headers={**limited, "Idempotency-Key": "a"}
    )

    refused(answer, 403, "forbidden")
    assert await nothing_is_stored(producer)


REFUSED = [
    ("GET", "/", 404, "not_found"),
    ("GET", "/v2/jobs", 404, "not_found"),
    ("GET", "/v1/jobs/", 404, "not_found"),
    ("POST", "/v1/job", 404, "not_found"),
    ("GET", "/docs", 404, "not_found"),
    ("DELETE", "/v1/jobs", 405, "method_not_allowed"),
    ("PUT", "/v1/jobs/019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55", 405, "method_not_allowed"),
    ("POST", "/healthz", 405, "method_not_allowed"),
    ("GET", "/v1/jobs?stat=failed", 422, "invalid_request"),
    ("GET", "/v1/jobs?status=dead", 422, "invalid_request"),
    ("GET", "/v1/jobs?limit=0", 422, "invalid_request"),
    ("GET", "/v1/jobs?limit=201", 422, "invalid_request"),
    ("GET", "/v1/jobs?limit=x", 422, "invalid_request"),
    ("GET", "/v1/jobs?type=%00", 422, "invalid_request"),
    ("GET", "/v1/jobs?label.a=%00", 422, "invalid_request"),
    ("GET", "/v1/jobs?parent=x", 422, "invalid_request"),
    ("GET", "/v1/jobs?cursor=x", 422, "invalid_cursor"),
    ("GET", "/v1/jobs?cursor=%C3%A4%F0%9F%8E%89", 422, "invalid_cursor"),
    ("GET", "/healthz?x=1", 422, "invalid_request"),
    ("GET", "/v1/jobs/nonsense", 404, "not_found"),
    ("GET", "/v1/jobs/%00", 404, "not_found"),
    ("GET", "/v1/jobs/019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55", 404, "not_found"),
    ("GET", "/v1/jobs/019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55/steps", 404, "not_found"),
    ("GET", "/v1/jobs/019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55?wait=61", 422, "invalid_request"),
    ("GET", "/v1/jobs/019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55?wait=nan", 422, "invalid_request"),
    ("POST", "/v1/jobs?dry=1", 422, "invalid_request"),
]


async def test_every_error_is_a_problem(producer: Producer, subtests: pytest.Subtests) -> None:
    for method, path, status, code in REFUSED:
        with subtests.test(f"{method} {path}"):
            answer = await producer.client.request(method, path)

            refused(answer, status, code)
            assert (status == 405) == ("allow" in answer.headers)


async def test_an_unexpected_error_is_a_problem_that_tells_nothing(producer: Producer) -> None:
    async def fail() -> None:
        raise RuntimeError("the password is 1234")

    producer.app.add_api_route("/fail", fail)

    answer = await producer.client.get("/fail")

    refused(answer, 500, "internal_error")
    assert "1234" not in answer.text


async def test_a_full_outbox_refuses_new_jobs_until_it_drains(producer: Producer) -> None:
    await producer.execute(
        "INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data)"
        " SELECT 'x', 'x', n, 'x', '{}' FROM generate_series(1, 50) AS n"
    )

    async def full() -> bool:
        return (await producer.submit("full")).status_code == 503

    await until(full)
    answer = await producer.submit("full")
    refused(answer, 503, "overloaded")
    assert int(answer.headers["retry-after"]) >= 1

    await producer.execute("DELETE FROM filaviva.outbox")

    async def drained() -> bool:
        return (await producer.submit("drained")).status_code == 202

    await until(drained)


async def test_without_a_broker_jobs_are_accepted(producer: Producer) -> None:
    producer.problems.append("broker: connection refused")

    assert (await producer.submit("a")).status_code == 202

    ready = await producer.client.get("/readyz")
    assert ready.status_code == 503
    assert "connection refused" in ready.text


async def test_health_needs_no_key(producer: Producer) -> None:
    bare = httpx2.AsyncClient(base_url=producer.url)
    assert (await bare.get("/healthz")).json() == {"status": "alive"}
    assert (await bare.get("/readyz")).status_code == 200
    await bare.aclose()


async def test_over_the_limit_it_is_429_at_every_replica_and_nothing_is_stored(
    producer: Producer,
) -> None:
    await producer.execute(
        "INSERT INTO filaviva.limits (tenant, per_minute, burst) VALUES ('*', 1, 3)"
    )
    other = await producer.replica()
    for name, client in (("here", producer.client), ("there", other.client)):
        keys = iter(f"{name}-{n}" for n in range(10_000))
        key, answer = await until(lambda keys=keys, client=client: _refused(client, keys))

        assert answer.json()["code"] == "rate_limited"
        assert answer.headers["content-type"] == "application/problem+json"
        assert 0 < int(answer.headers["retry-after"]) <= 60
        stored = "SELECT 1 FROM filaviva.jobs WHERE idempotency_key = :key"
        assert await producer.execute(stored, key=key) == []


async def _refused(
    client: httpx2.AsyncClient, keys: Iterator[str]
) -> tuple[str, httpx2.Response] | None:
    """Submit under the next key; the limit holds once the replica has heard of it."""
    key, body = next(keys), {"type": "test.echo", "data": {"n": 1}}
    answer = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
    return (key, answer) if answer.status_code == 429 else None


async def test_without_the_database_it_is_503_until_it_is_back(producer: Producer) -> None:
    await producer.submit("warm")
    await producer.lose_database()

    answer = await producer.client.get("/v1/jobs")

    problem = refused(answer, 503, "unavailable")
    assert answer.headers["retry-after"]
    assert "postgres" not in problem["detail"]

    await producer.find_database()

    async def back() -> bool:
        return (await producer.submit("back")).status_code == 202

    await until(back)


async def test_submissions_are_counted(producer: Producer) -> None:
    await producer.submit("a")
    await producer.submit("a")
    await producer.submit("b", data={"n": "x"})
    await producer.submit("c", type="no.such")

    def count(job_type: str, result: str) -> float | None:
        labels = {"type": job_type, "source": "http", "result": result}
        return producer.metrics.registry.get_sample_value("filaviva_jobs_submitted_total", labels)

    assert count("test.echo", "accepted") == 1
    assert count("test.echo", "duplicate") == 1
    assert count("test.echo", "rejected") == 1
    assert count("unknown", "rejected") == 1
    assert count("no.such", "rejected") is None


async def test_requests_are_counted_by_route_and_never_by_path(producer: Producer) -> None:
    job = (await producer.submit("a")).json()["jobId"]
    await producer.client.get(f"/v1/jobs/{job}")
    await producer.client.get("/v1/jobs/nonsense")
    await producer.client.get(f"/no/such/{job}")
    await producer.client.request("PROPFIND", "/v1/jobs")

    def count(route: str, method: str, status: int) -> float | None:
        labels = {"route": route, "method": method, "status": str(status)}
        name = "filaviva_http_request_duration_seconds_count"
        return producer.metrics.registry.get_sample_value(name, labels)

    assert count("/v1/jobs", "POST", 202) == 1
    assert count("/v1/jobs/{job_id}", "GET", 200) == 1
    assert count("/v1/jobs/{job_id}", "GET", 404) == 1
    assert count("unmatched", "GET", 404) == 1
    assert count("/v1/jobs", "other", 405) == 1


async def test_openapi_describes_every_route(producer: Producer) -> None:
    api = (await producer.client.get("/openapi.json")).json()

    post = api["paths"]["/v1/jobs"]["post"]
    assert set(post["responses"]) == {
        "202", "400", "401", "403", "408", "413", "415", "422", "429", "500", "503",
    }  # fmt: skip
    assert "idempotency_key_reused" in json.dumps(post)
    reads = {path for path, item in api["paths"].items() if "get" in item}
    assert reads == {
        "/v1/jobs",
        "/v1/jobs/{job_id}",
        "/v1/jobs/{job_id}/items",
        "/v1/jobs/{job_id}/attempts",
        "/v1/jobs/{job_id}/steps",
        "/v1/jobs/{job_id}/llm-calls",
        "/v1/jobs/{job_id}/timeline",
        "/v1/schedules",
        "/v1/schedules/{schedule_id}",
        "/v1/jobs/{job_id}/events",
        "/v1/contracts",
        "/v1/contracts/{contract_type}/{version}",
        "/v1/asyncapi.json",
        "/v1/contents/{name}",
    }
    assert "HTTPValidationError" not in json.dumps(api)
    for item in api["paths"].values():
        for operation in item.values():
            assert operation["security"] == [{"apiKey": []}]
            assert "application/problem+json" in operation["responses"]["422"]["content"]


async def test_stopping_lets_open_requests_end(producer: Producer) -> None:
    submitted = (await producer.submit("a")).json()
    waiting = asyncio.create_task(producer.client.get(f"{submitted['statusUrl']}?wait=30"))
    await until(lambda: producer.watch.waiting)

    producer.stop.set()

    answer = await asyncio.wait_for(waiting, timeout=5)
    assert answer.status_code == 200
    assert answer.json()["status"] == "queued"
