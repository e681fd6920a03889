"""Whether the producer is usable."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.broker.publisher import Publisher
from filaviva.database import newest_revision, present_revision
from filaviva.database.transaction import DATABASE_ERRORS


class Readiness:
    """List what keeps jobs from being accepted or from leaving: nothing means ready."""

    def __init__(self, engine: AsyncEngine, publisher: Publisher) -> None:
        self._engine = engine
        self._publisher = publisher
        self._expected = newest_revision()

    async def __call__(self) -> list[str]:
        """Ask the database and look at the broker's connection."""
        return [*await self._database(), *self._publisher.problems()]

    async def _database(self) -> list[str]:
        try:
            async with asyncio.timeout(2):
                found = await present_revision(self._engine)
        except DATABASE_ERRORS as away:
            return [f"database: {type(away).__name__}"]
        # A newer release may have migrated it while this one is still being replaced: migrations
        # only add what the release before does not know.
        if found is not None and found >= self._expected:
            return []
        return [f"database: found schema {found}, expected {self._expected}: run filaviva setup"]
