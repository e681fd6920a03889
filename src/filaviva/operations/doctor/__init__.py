"""The doctor: what is wrong with an installation, and the next step for each finding.

Before: two addresses. After: findings; nothing was changed. May happen twice: always.
"""

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database import connect
from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.operations.doctor import broker, database
from filaviva.operations.doctor.bounded import SECONDS, within
from filaviva.operations.doctor.broker import Addresses
from filaviva.operations.doctor.finding import Finding
from filaviva.operations.routes import Routes, routes

__all__ = ["Addresses", "Finding", "examine", "healthy"]


async def examine(
    database_url: str, addresses: Addresses, *, lease_seconds: float = 15
) -> list[Finding]:
    """Look at the database and the broker; an absent one is a finding, never an error."""
    engine = connect(database_url, name="filaviva-doctor", size=3)
    try:
        known = asyncio.ensure_future(_routes(engine))
        looks = database.examine(engine, database_url, lease_seconds=lease_seconds)
        # They share one time: a server that is frozen must not cost it twice.
        there, kept = await asyncio.gather(
            within("broker", broker.examine(addresses, known)), within("database", looks)
        )
        known.cancel()
    finally:
        await engine.dispose()
    return there + kept


async def _routes(engine: AsyncEngine) -> Routes | None:
    try:
        async with asyncio.timeout(SECONDS / 2), engine.connect() as connection:
            return await routes(connection)
    except DATABASE_ERRORS:
        return None


def healthy(findings: Sequence[Finding]) -> bool:
    """Tell whether nothing stands in the way of work."""
    return all(finding.level != "wrong" for finding in findings)
