"""The last drill is known, and whether it passed; nobody else submits its jobs."""

from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.built_in import built_in
from filaviva.drill.contract import DrillCall
from filaviva.operations import drills, keys
from filaviva.publishing import publish
from fixtures.producer import Producer


async def test_the_last_drill_is_the_last_that_ended(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        assert await drills.last(connection) is None
        good = await drills.begin(connection, author="cli:ana", cut_seconds=120)
        assert await drills.last(connection) is None
        await drills.end(connection, good, passed=True, report={"facts": []})
        bad = await drills.begin(connection, author="cli:ana", cut_seconds=5)
        await drills.end(connection, bad, passed=False, report={"facts": [{"holds": False}]})
        await drills.end(connection, bad, passed=True, report={})
        await drills.begin(connection, author="cli:ana", cut_seconds=5)

        newest, passed = await drills.last(connection), await drills.last(connection, passed=True)

    assert newest is not None
    assert passed is not None
    assert (newest.id, newest.passed, newest.report) == (bad, False, {"facts": [{"holds": False}]})
    assert (passed.id, passed.cut_seconds, passed.author) == (good, 120, "cli:ana")
    assert passed.began_at <= passed.ended_at <= newest.ended_at


async def test_only_a_key_of_the_drill_may_submit_its_jobs(producer: Producer) -> None:
    async with producer.engine.begin() as connection:
        await publish(connection, built_in())
    await producer.registry.refresh()
    call = {"type": DrillCall.contract_type, "data": {"drillId": str(uuid4()), "number": 1}}
    key = await keys.create(
        producer.engine, name="drill", tenant="d", scopes=["jobs:write"], types=[call["type"]]
    )

    refused = await producer.submit("a", **call)
    own = {"Authorization": f"Bearer {key.token}", "Idempotency-Key": "b"}
    taken = await producer.client.post("/v1/jobs", json=call, headers=own)

    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_contract")
    assert taken.status_code == 202, taken.text
