"""The dlq-handler over HTTP: its API on a real port and a real database."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from filaviva.http import HttpServer
from filaviva.operations import keys
from filaviva.operations.keys import SCOPES, KeyRing
from filaviva.registry import Registry
from filaviva_dlq_handler.api import Api, Routes
from fixtures.dying import Morgue, Sent, died

SCHEMA = {"type": "object", "properties": {"url": {"type": "string"}}}
PAYLOAD = """'{"url"\\: "https\\://secret", "page"\\: 12345678901234567890.10}'"""
PAGED = {"limit": "1"}


@dataclass
class Running:
    """The API and its keys."""

    client: httpx2.AsyncClient
    morgue: Morgue
    started: list[int]

    async def key(self, tenant: str = "default", scopes: tuple[str, ...] = SCOPES) -> Any:
        """Make a key; give its header."""
        made = await keys.create(self.morgue.engine, name="test", tenant=tenant, scopes=scopes)
        return {"Authorization": f"Bearer {made.token}"}

    async def get(self, path: str, **more: Any) -> Any:
        """Read something that is there."""
        answer = await self.client.get(path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any, **more: Any) -> httpx2.Response:
        """Ask for something."""
        return await self.client.post(path, json=body, **more)


@pytest.fixture
async def api(morgue: Morgue) -> AsyncIterator[Running]:
    registry: Registry = await morgue.contract(SCHEMA)
    stop = asyncio.Event()
    started: list[int] = []

    async def ready() -> list[str]:
        return []

    app = Api(
        Routes(morgue.engine, registry, lambda: started.append(1)),
        version="0",
        authenticator=KeyRing(morgue.engine),
        ready=ready,
        stopping=stop,
    )
    server = HttpServer(app, host="127.0.0.1", port=0)
    serving = asyncio.create_task(server.run(stop))
    async with httpx2.AsyncClient(
        base_url=server.url, verify=False, timeout=20, trust_env=False
    ) as client:
        running = Running(client, morgue, started)
        client.headers.update(await running.key())
        yield running
    stop.set()
    await serving


def refused(answer: httpx2.Response, status: int, code: str) -> None:
    """Check that it is our problem."""
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_letters_are_listed_newest_first_in_pages(api: Running) -> None:
    letters = [await api.morgue.letter_of(f"broke {word}") for word in "abc"]

    seen, cursor = [], None
    while True:
        page = await api.get("/v1/dead-letters", params={**PAGED, "cursor": cursor or ""} if cursor
                             else PAGED)  # fmt: skip
        seen += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break

    assert seen == [str(letter["id"]) for letter in reversed(letters)]


async def test_a_letter_has_the_shape_that_is_promised(api: Running) -> None:
    letter = await api.morgue.letter_of()

    (item,) = (await api.get("/v1/dead-letters"))["items"]

    assert item == {
        "id": str(letter["id"]),
        "jobId": str(letter["job_id"]),
        "type": "invoice.extract",
        "version": 1,
        "reason": "terminal",
        "status": "open",
        "group": str(letter["group_id"]),
        "error": {"class": "upstream", "code": "ServerError", "message": "it broke"},
        "attempts": 3,
        "costUsd": "0.25",
        "createdAt": item["createdAt"],
    }


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"type": "invoice.extract"}, 1),
        ({"type": "other"}, 0),
        ({"errorClass": "upstream"}, 1),
        ({"errorClass": "timeout"}, 0),
        ({"status": "open"}, 1),
        ({"status": "resolved"}, 0),
        ({"reason": "terminal"}, 1),
        ({"group": str(uuid4())}, 0),
    ],
)
async def test_letters_are_filtered(api: Running, query: dict[str, str], count: int) -> None:
    await api.morgue.letter_of()

    assert len((await api.get("/v1/dead-letters", params=query))["items"]) == count


async def test_a_misspelt_filter_is_refused(api: Running) -> None:
    refused(await api.client.get("/v1/dead-letters?stauts=open"), 422, "invalid_request")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("dead-letters?status=opne", "'open', 'replaying', 'resolved' or 'discarded'"),
        ("dead-letters?reason=exhausted", "'attempts_exhausted'"),
        ("dead-letters?errorClass=Timeout", "'timeout'"),
        ("failure-groups?state=closed", "'open', 'snoozed' or 'resolved'"),
    ],
)
async def test_a_word_that_a_filter_does_not_know_is_refused_with_those_that_it_knows(
    api: Running, path: str, expected: str
) -> None:
    answer = await api.client.get(f"/v1/{path}")

    refused(answer, 422, "invalid_request")
    assert expected in answer.json()["detail"]


async def test_a_replay_of_a_misspelt_class_is_refused(api: Running) -> None:
    body = {"scope": {"filter": {"errorClass": "upstraem"}}, "reason": "x"}

    refused(await api.client.post("/v1/replays", json=body), 422, "invalid_request")


async def test_the_payload_is_redacted_until_somebody_asks_and_is_remembered(api: Running) -> None:
    letter = await api.morgue.letter_of(payload=PAYLOAD)
    path = f"/v1/dead-letters/{letter['id']}"

    shown = await api.get(path)
    revealed = await api.client.get(path, params={"reveal": "true"})

    assert shown["payload"] == {"url": "<text of 14 characters>", "page": "<number>"}
    assert '"page": 12345678901234567890.10' in revealed.text
    (entry,) = await api.morgue.all("SELECT * FROM filaviva.audit_log WHERE action LIKE 'dead%'")
    assert (entry["action"], entry["target"]) == ("dead_letter.revealed", str(letter["id"]))
    assert entry["author"].startswith("key:")


async def test_who_may_only_read_reveals_nothing(api: Running) -> None:
    letter = await api.morgue.letter_of(payload=PAYLOAD)
    reader = await api.key(scopes=("dlq:read",))
    path = f"/v1/dead-letters/{letter['id']}"

    answer = await api.client.get(path, params={"reveal": "true"}, headers=reader)

    refused(answer, 403, "forbidden")
    assert (await api.client.get(path, headers=reader)).status_code == 200


async def test_bytes_that_nobody_can_read_are_shown_as_they_came(api: Running) -> None:
    await api.morgue.file(Sent(body=b"\xff\x00", headers=died("rejected")))
    (item,) = (await api.get("/v1/dead-letters"))["items"]

    shown = await api.get(f"/v1/dead-letters/{item['id']}", params={"reveal": "true"})

    assert shown["payload"]["base64"] == "/wA="
    assert shown["sourceQueue"] == "filaviva.work.llm"


async def test_a_tenant_sees_and_touches_only_its_own(api: Running) -> None:
    letter = await api.morgue.letter_of()
    await api.morgue.file(Sent(body=b"broken", headers=died("rejected")))
    other = await api.key("other", scopes=("dlq:read", "dlq:replay"))
    path = f"/v1/dead-letters/{letter['id']}"

    for listed in ("/v1/dead-letters", "/v1/failure-groups", "/v1/replays"):
        assert (await api.get(listed, headers=other))["items"] == []
    refused(await api.client.get(path, headers=other), 404, "not_found")
    refused(await api.post(f"{path}/discard", {"reason": "x"}, headers=other), 404, "not_found")
    body = {"scope": {"ids": [str(letter["id"])]}, "reason": "mine now"}
    refused(await api.post("/v1/replays", body, headers=other), 404, "not_found")
    group = f"/v1/failure-groups/{letter['group_id']}"
    refused(await api.post(f"{group}/resolve", {}, headers=other), 404, "not_found")


async def test_scopes_are_needed(api: Running) -> None:
    letter = await api.morgue.letter_of()
    reader, stranger = await api.key(scopes=("dlq:read",)), await api.key(scopes=("jobs:read",))
    body = {"scope": {"ids": [str(letter["id"])]}, "reason": "x"}

    refused(await api.post("/v1/replays", body, headers=reader), 403, "forbidden")
    refused(await api.client.get("/v1/dead-letters", headers=stranger), 403, "forbidden")
    bare = await api.client.get("/v1/dead-letters", headers={"Authorization": ""})
    refused(bare, 401, "unauthenticated")


async def test_a_replay_is_an_operation_with_progress(api: Running) -> None:
    letter = await api.morgue.letter_of()
    body = {"scope": {"ids": [str(letter["id"])]}, "reason": "fixed"}

    answer = await api.post("/v1/replays", body)

    assert answer.status_code == 202
    begun = answer.json()
    assert answer.headers["location"] == begun["statusUrl"] == f"/v1/replays/{begun['id']}"
    found = await api.get(begun["statusUrl"])
    assert found["progress"]["waiting"] == 1
    assert found["estimatedCostUsd"] == "0.10"
    assert (found["reason"], found["status"]) == ("fixed", "running")
    assert api.started == [1]
    refused(await api.post("/v1/replays", body), 409, "conflict")
    stopped = await api.post(f"{begun['statusUrl']}/stop", None)
    assert stopped.json()["status"] == "stopped"
    refused(await api.post(f"{begun['statusUrl']}/stop", None), 409, "conflict")


async def test_two_replays_over_http_at_once_are_one(api: Running) -> None:
    letter = await api.morgue.letter_of()
    body = {"scope": {"group": str(letter["group_id"])}, "reason": "fixed"}

    answers = await asyncio.gather(*[api.post("/v1/replays", body) for _ in range(5)])

    assert sorted(answer.status_code for answer in answers) == [202, 409, 409, 409, 409]


async def test_a_patch_that_does_not_fit_points_at_what_is_wrong(api: Running) -> None:
    letter = await api.morgue.letter_of(payload=PAYLOAD)
    body = {
        "scope": {"ids": [str(letter["id"])]},
        "patch": [{"op": "replace", "path": "/url", "value": 5}],
        "reason": "fixed",
    }

    answer = await api.post("/v1/replays", body)

    refused(answer, 422, "invalid_data")
    assert answer.json()["errors"][0]["pointer"] == "/url"
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scope": {}, "reason": "x"},
        {"scope": {"filter": {}}, "reason": "x"},
        {"scope": {"ids": []}, "reason": "x"},
        {"scope": {"ids": ["nonsense"]}, "reason": "x"},
        {"scope": {"filter": {"typ": "x"}}, "reason": "x"},
        {"scope": {"ids": [str(uuid4())], "group": str(uuid4())}, "reason": "x"},
        {"scope": {"ids": [str(uuid4())]}},
        {"scope": {"ids": [str(uuid4())]}, "reason": ""},
        {"scope": {"ids": [str(uuid4())]}, "reason": "x", "rate": 5},
        {"scope": {"ids": [str(uuid4())]}, "reason": "x", "ratePerSecond": -1},
        {"scope": {"ids": [str(uuid4())]}, "reason": "x", "canary": 0},
        [],
    ],
)
async def test_a_replay_that_is_not_understood_is_refused(api: Running, body: Any) -> None:
    answer = await api.post("/v1/replays", body)

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"]


async def test_discard_needs_a_reason_and_happens_once(api: Running) -> None:
    letter = await api.morgue.letter_of()
    path = f"/v1/dead-letters/{letter['id']}/discard"

    refused(await api.post(path, {}), 422, "invalid_request")
    done = await api.post(path, {"reason": "a test document"})
    assert (done.status_code, done.json()["status"]) == (200, "discarded")
    refused(await api.post(path, {"reason": "again"}), 409, "conflict")


async def test_groups_are_listed_snoozed_and_resolved(api: Running) -> None:
    letters = [await api.morgue.letter_of(f"broke {word}") for word in "abc"]

    first = await api.get("/v1/failure-groups", params=PAGED)
    second = await api.get("/v1/failure-groups", params={**PAGED, "cursor": first["next"]})
    assert first["items"][0]["id"] == str(letters[2]["group_id"])
    assert second["items"][0]["id"] == str(letters[1]["group_id"])

    path = f"/v1/failure-groups/{letters[0]['group_id']}"
    snoozed = await api.post(f"{path}/snooze", {"seconds": 3600, "reason": "known"})
    assert snoozed.json()["state"] == "snoozed"
    assert (await api.post(f"{path}/resolve", {})).json()["state"] == "resolved"
    refused(await api.post(f"{path}/snooze", {"seconds": 60}), 409, "conflict")
    refused(await api.post(f"{path}/snooze", {"seconds": -1}), 422, "invalid_data")
    shown = await api.get("/v1/failure-groups", params={"state": "resolved"})
    assert [item["id"] for item in shown["items"]] == [str(letters[0]["group_id"])]


@pytest.mark.parametrize("path", ["dead-letters", "failure-groups", "replays"])
async def test_what_is_not_there_is_not_found(api: Running, path: str) -> None:
    for id_ in (str(uuid4()), "nonsense", "%00"):
        refused(await api.client.get(f"/v1/{path}/{id_}"), 404, "not_found")


async def test_the_api_describes_itself(api: Running) -> None:
    described = await api.get("/openapi.json")

    assert "/v1/replays" in described["paths"]
    assert "202" in described["paths"]["/v1/replays"]["post"]["responses"]
