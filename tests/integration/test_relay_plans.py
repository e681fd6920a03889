"""The relay's statements do not depend on what the statistics believe."""

import time
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.broker.messages import CONFIRMED, Outgoing, Published
from filaviva.database import connect
from filaviva.relay import Relay

pytestmark = pytest.mark.alone

BACKLOG = 100_000


class TakesAll:
    """A publisher that confirms at once: only the database is measured."""

    healthy = True

    async def connect(self) -> None:
        """It always is."""

    async def publish(self, messages: list[Outgoing], *, sent: object = None) -> list[Published]:
        del sent
        return [CONFIRMED] * len(messages)


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    engine = connect(database, name="test", size=2)
    yield engine
    await engine.dispose()


async def fill(engine: AsyncEngine, count: int, *, due: bool) -> None:
    when = "clock_timestamp()" if due else "clock_timestamp() + interval '1 hour'"
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO filaviva.outbox"
                " (exchange, routing_key, message_id, type, data, locked_until)"
                f" SELECT 'e', 'k', 'm' || n, 't.v1', '{{}}', {when}"
                " FROM generate_series(1, :count) AS n"
            ),
            {"count": count},
        )


async def maintain(engine: AsyncEngine, statement: str) -> None:
    async with engine.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await autocommit.execute(text(statement))


async def seconds_for_a_step(engine: AsyncEngine) -> float:
    relay = Relay(engine, TakesAll())
    await relay.step()
    taken = []
    for _ in range(8):
        started = time.perf_counter()
        assert await relay.step() == 500
        taken.append(time.perf_counter() - started)
    return sorted(taken)[len(taken) // 2]


async def test_a_sweep_takes_as_long_whatever_the_statistics_say(engine: AsyncEngine) -> None:
    await maintain(engine, "ALTER TABLE filaviva.outbox SET (autovacuum_enabled = false)")
    await fill(engine, 20_000, due=True)
    never = await seconds_for_a_step(engine)

    await maintain(engine, "TRUNCATE filaviva.outbox")
    await maintain(engine, "ANALYZE filaviva.outbox")
    await fill(engine, BACKLOG, due=False)
    await fill(engine, 20_000, due=True)
    outdated = await seconds_for_a_step(engine)

    await maintain(engine, "ANALYZE filaviva.outbox")
    fresh = await seconds_for_a_step(engine)

    slowest, fastest = max(never, outdated, fresh), min(never, outdated, fresh)
    assert slowest <= 2 * fastest + 0.01, f"never {never}, outdated {outdated}, fresh {fresh}"
