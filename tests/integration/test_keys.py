"""API keys: shown once, kept as a hash, refused soon after they are revoked."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database import connect
from filaviva.errors import NotFound, Rejected
from filaviva.operations import keys
from filaviva.operations.keys import KeyRing
from fixtures.producer import Producer
from fixtures.waiting import until


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    made = connect(database, name="test")
    yield made
    await made.dispose()


async def test_a_key_tells_whose_it_is(engine: AsyncEngine) -> None:
    made = await keys.create(
        engine, name="shop", tenant="acme", scopes=["jobs:write", "jobs:read"], types=["a.b"]
    )

    found = await KeyRing(engine).authenticate(made.token)

    assert found is not None
    assert (found.key_id, found.tenant) == (made.id, "acme")
    assert found.scopes == {"jobs:write", "jobs:read"}
    assert found.may("jobs:read")
    assert not found.may("admin")
    assert found.may_use("a.b")
    assert not found.may_use("a.c")


async def test_admin_has_every_scope(engine: AsyncEngine) -> None:
    made = await keys.create(engine, name="root", tenant="acme", scopes=["admin"])

    found = await KeyRing(engine).authenticate(made.token)

    assert found is not None
    assert all(found.may(scope) for scope in keys.SCOPES)


async def test_the_secret_is_stored_nowhere(engine: AsyncEngine) -> None:
    made = await keys.create(engine, name="shop", tenant="acme", scopes=["admin"])
    await KeyRing(engine).authenticate(made.token)
    secret = made.token.rpartition("_")[2]

    async with engine.connect() as connection:
        for table in ("api_keys", "audit_log"):
            found = await connection.execute(text(f"SELECT t::text FROM filaviva.{table} AS t"))
            assert not [row for row in found if secret in row[0]]


async def test_a_wrong_token_is_nobodys(engine: AsyncEngine) -> None:
    made = await keys.create(engine, name="shop", tenant="acme", scopes=["admin"])
    ring = KeyRing(engine)
    await ring.authenticate(made.token)
    other = "1" if made.token[-1] == "0" else "0"

    wrong = (
        made.token[:-1] + other,
        made.token[:-1],
        made.token + "0",
        made.token.upper(),
        f"fv_{'0' * 12}_{'0' * 64}",
        "fv__",
        "",
        "x" * 100_000,
        made.token.replace("fv_", "fv_\N{ARABIC-INDIC DIGIT ONE}"),
    )

    for token in wrong:
        assert await ring.authenticate(token) is None
        async with engine.connect() as connection:
            assert await keys.authenticate(connection, token) is None


async def test_an_expired_key_is_nobodys(engine: AsyncEngine) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    made = await keys.create(engine, name="old", tenant="acme", scopes=["admin"], expires_at=past)

    assert await KeyRing(engine).authenticate(made.token) is None


async def test_a_revoked_key_is_refused_within_two_seconds(producer: Producer) -> None:
    header = await producer.as_key()
    assert (await producer.client.get("/v1/jobs", headers=header)).status_code == 200
    key_id = header["Authorization"].split("_")[1]
    await keys.revoke(producer.engine, key_id)
    revoked = time.monotonic()

    async def refused() -> bool:
        return (await producer.client.get("/v1/jobs", headers=header)).status_code == 401

    await until(refused)

    assert time.monotonic() - revoked < 2


async def test_many_requests_ask_the_database_once(engine: AsyncEngine) -> None:
    made = await keys.create(engine, name="shop", tenant="acme", scopes=["admin"])
    ring = KeyRing(engine, remember_seconds=60)
    asked: list[str] = []
    event.listen(
        engine.sync_engine,
        "before_cursor_execute",
        lambda _c, _cursor, statement, *_: asked.append(statement),
    )

    found = await asyncio.gather(*(ring.authenticate(made.token) for _ in range(100)))

    assert all(found)
    assert len([statement for statement in asked if statement.startswith("SELECT")]) == 1


async def test_use_is_remembered(engine: AsyncEngine) -> None:
    made = await keys.create(engine, name="shop", tenant="acme", scopes=["admin"])
    (before,) = await keys.list_keys(engine)

    await KeyRing(engine).authenticate(made.token)

    (after,) = await keys.list_keys(engine)
    assert before.last_used_at is None
    assert after.last_used_at is not None


async def test_keys_are_listed_by_tenant(engine: AsyncEngine) -> None:
    one = await keys.create(engine, name="one", tenant="a", scopes=["jobs:read"], types=["x.y"])
    two = await keys.create(engine, name="two", tenant="b", scopes=["admin"])
    await keys.revoke(engine, one.id)

    assert [key.id for key in await keys.list_keys(engine)] == [two.id, one.id]
    (listed,) = await keys.list_keys(engine, tenant="a")
    assert (listed.name, listed.scopes, listed.types) == ("one", ("jobs:read",), ("x.y",))
    assert listed.revoked_at is not None


async def test_who_made_and_revoked_a_key_is_on_record(engine: AsyncEngine) -> None:
    made = await keys.create(engine, name="shop", tenant="acme", scopes=["admin"], author="ana")
    await keys.revoke(engine, made.id, author="rui")

    async with engine.connect() as connection:
        found = await connection.execute(
            text("SELECT author, action, tenant, target FROM filaviva.audit_log ORDER BY id")
        )
        assert [tuple(row) for row in found] == [
            ("ana", "key.created", "acme", made.id),
            ("rui", "key.revoked", "acme", made.id),
        ]


async def test_revoking_twice_keeps_the_first_time(engine: AsyncEngine) -> None:
    made = await keys.create(engine, name="shop", tenant="acme", scopes=["admin"])
    await keys.revoke(engine, made.id)
    (first,) = await keys.list_keys(engine)

    await keys.revoke(engine, made.id)

    assert await keys.list_keys(engine) == [first]
    with pytest.raises(NotFound):
        await keys.revoke(engine, "nonsense")


async def test_an_impossible_key_is_refused(engine: AsyncEngine) -> None:
    naive = datetime(2030, 1, 1)  # noqa: DTZ001 - that is the point
    with pytest.raises(Rejected) as refused:
        await keys.create(engine, name="x", tenant="a b", scopes=["jobs:all"], expires_at=naive)

    pointers = [flaw.pointer for flaw in refused.value.flaws]
    assert pointers == ["/scopes/0", "/tenant", "/expiresAt"]
    assert await keys.list_keys(engine) == []
