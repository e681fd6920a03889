"""Whether the dlq-handler is usable."""

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.broker.consumer import Consumer
from filaviva.broker.publisher import Publisher
from filaviva.database.transaction import DATABASE_ERRORS


class Readiness:
    """List what keeps dead letters from being filed and sent back: nothing means ready."""

    def __init__(
        self, engine: AsyncEngine, consumers: Sequence[Consumer], publisher: Publisher
    ) -> None:
        self._engine = engine
        self._consumers = consumers
        self._publisher = publisher

    async def __call__(self) -> list[str]:
        """Ask the database and look at the broker's connections."""
        problems = self._publisher.problems()
        for consumer in self._consumers:
            problems += consumer.problems()
        try:
            async with asyncio.timeout(2), self._engine.connect() as connection:
                await connection.exec_driver_sql("SELECT 1 FROM filaviva.dead_letters LIMIT 0")
        except DATABASE_ERRORS as away:
            problems.append(f"database: {type(away).__name__}")
        return problems
