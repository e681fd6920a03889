"""The last drill is known, and whether it passed."""

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.operations import drills


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
