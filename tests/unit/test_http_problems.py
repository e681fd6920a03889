"""Whatever a route raises becomes a problem that says enough and not too much."""

import asyncio
import json
from typing import Annotated, Any

import asyncpg
import httpx2
import pytest
from fastapi import Depends
from pydantic import BaseModel, ConfigDict

from filaviva.errors import Flaw, NotFound, Rejected, Unreachable
from filaviva.http import Application, BodyLimits, allowed, json_body
from filaviva.operations.keys import Principal


class Note(BaseModel):
    """A body."""

    model_config = ConfigDict(extra="forbid")
    text: str
    tags: list[int] = []


class Door:
    """Knows one token."""

    async def authenticate(self, token: str) -> Principal | None:
        """Let it in."""
        if token != "good":
            return None
        return Principal("key", "acme", frozenset({"dlq:read"}))


async def ready() -> list[str]:
    """Miss nothing."""
    return []


@pytest.fixture
def app() -> Application:
    return Application(
        title="test",
        version="0",
        authenticator=Door(),
        ready=ready,
        stopping=asyncio.Event(),
        body_limits=BodyLimits(accepted=1000),
    )


def client(app: Application) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://test")


RAISED: list[tuple[Exception, int, str]] = [
    (Rejected("no_way", "why", status=409), 409, "no_way"),
    (NotFound("there is no letter 7"), 404, "not_found"),
    (Unreachable("away"), 503, "unavailable"),
    (ConnectionRefusedError("postgresql://user:secret@host"), 503, "unavailable"),
    (TimeoutError(), 503, "unavailable"),
    (asyncpg.LockNotAvailableError("canceling secret"), 503, "overloaded"),
    (asyncpg.QueryCanceledError("canceling secret"), 503, "overloaded"),
    (asyncpg.DataError("secret"), 500, "internal_error"),
    (KeyError("secret"), 500, "internal_error"),
]


@pytest.mark.parametrize(("raised", "status", "code"), RAISED, ids=lambda value: repr(value)[:30])
async def test_what_is_raised_becomes_a_problem(
    app: Application, raised: Exception, status: int, code: str
) -> None:
    async def fail() -> None:
        raise raised

    app.add_api_route("/x", fail)

    answer = await client(app).get("/x", headers={"X-Request-Id": "r1"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == code
    assert problem["type"] == f"urn:filaviva:problem:{code}"
    assert (problem["instance"], problem["requestId"]) == ("/x", "r1")
    assert "secret" not in answer.text


async def test_flaws_and_retry_after_are_told(app: Application) -> None:
    async def fail() -> None:
        flaws = [Flaw("/a", "wrong")]
        raise Rejected("x", "why", status=429, flaws=flaws, retry_after=0.2)

    app.add_api_route("/x", fail)

    answer = await client(app).get("/x")

    assert answer.headers["retry-after"] == "1"
    assert answer.json()["errors"] == [{"pointer": "/a", "detail": "wrong"}]


async def test_half_a_surrogate_in_a_detail_does_no_harm(app: Application) -> None:
    async def fail() -> None:
        raise Rejected("x", "found \ud800", status=422)

    app.add_api_route("/x", fail)

    assert (await client(app).get("/x")).json()["detail"] == "found \ud800"


_FLAWS = ["/text", "/tags/1", "/a~1b"]
BODIES: list[tuple[Any, int, str, list[str]]] = [
    (b'{"text": "a"}', 200, "", []),
    (b'{"text": 7, "tags": [1, "x"], "a/b": 1}', 422, "invalid_request", _FLAWS),
    (b"{", 400, "malformed_json", []),
    (b'{"text": "a", "text": "b"}', 400, "malformed_json", []),
    (b"[" * 990, 400, "malformed_json", []),
    (b" " * 1001, 413, "body_too_large", []),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "code", "pointers"), BODIES)
async def test_bodies_are_read_strictly(
    app: Application, body: bytes, status: int, code: str, pointers: list[str]
) -> None:
    async def take(note: Annotated[Note, Depends(json_body(Note))]) -> dict[str, Any]:
        return note.model_dump()

    app.add_api_route("/x", take, methods=["POST"])

    answer = await client(app).post(
        "/x", content=body, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == status, answer.text
    if code:
        assert answer.json()["code"] == code
        assert [error["pointer"] for error in answer.json().get("errors", [])] == pointers


async def test_unknown_query_parameters_are_refused(app: Application) -> None:
    async def take(a: int = 1) -> int:
        return a

    app.add_api_route("/x", take)
    app.add_api_route("/y", take, openapi_extra={"x-query-families": ["label."]})

    assert (await client(app).get("/x?a=2")).status_code == 200
    wrong = await client(app).get("/x?b=2")
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/query/b")
    assert (await client(app).get("/y?label.x=2&a=1")).status_code == 200
    assert (await client(app).get("/x?label.x=2")).status_code == 422


async def test_a_scope_is_asked_for(app: Application) -> None:
    async def take(who: Annotated[Principal, Depends(allowed("dlq:read"))]) -> str:
        return who.tenant

    async def replay(_: Annotated[Principal, Depends(allowed("dlq:replay"))]) -> None:
        raise AssertionError

    app.add_api_route("/read", take)
    app.add_api_route("/replay", replay)
    good, bad = {"Authorization": "Bearer good"}, {"Authorization": "Bearer bad"}

    assert (await client(app).get("/read", headers=good)).json() == "acme"
    assert (await client(app).get("/read", headers=bad)).status_code == 401
    assert (await client(app).get("/read")).status_code == 401
    refused = await client(app).get("/replay", headers=good)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


async def test_openapi_knows_our_errors(app: Application) -> None:
    api = (await client(app).get("/openapi.json")).json()

    assert api["components"]["schemas"]["Problem"]["required"]
    assert "/healthz" not in json.dumps(api)
