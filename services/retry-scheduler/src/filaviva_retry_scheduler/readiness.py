"""Whether the retry-scheduler is usable."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.broker.consumer import Consumer
from filaviva.broker.publisher import Publisher
from filaviva.database.transaction import DATABASE_ERRORS


class Readiness:
    """List what keeps decisions from being taken and sent: nothing means ready."""

    def __init__(self, engine: AsyncEngine, consumer: Consumer, publisher: Publisher) -> None:
        self._engine = engine
        self._consumer = consumer
        self._publisher = publisher

    async def __call__(self) -> list[str]:
        """Ask the database and look at the broker's connections."""
        problems = [*self._publisher.problems(), *self._consumer.problems()]
        try:
            async with asyncio.timeout(2), self._engine.connect() as connection:
                await connection.exec_driver_sql("SELECT 1 FROM filaviva.jobs LIMIT 0")
        except DATABASE_ERRORS as away:
            problems.append(f"database: {type(away).__name__}")
        return problems
