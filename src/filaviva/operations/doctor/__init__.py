"""The doctor: what is wrong with an installation, and the next step for each finding.

Before: two addresses. After: findings; nothing was changed. May happen twice: always.
"""

from collections.abc import Sequence

from filaviva.database import connect
from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.operations.doctor import broker, database
from filaviva.operations.doctor.broker import Addresses
from filaviva.operations.doctor.finding import Finding
from filaviva.operations.routes import Routes, routes

__all__ = ["Addresses", "Finding", "examine", "healthy"]


async def examine(
    database_url: str, addresses: Addresses, *, lease_seconds: float = 15
) -> list[Finding]:
    """Look at the database and the broker; an absent one is a finding, never an error."""
    engine = connect(database_url, name="filaviva-doctor", size=2)
    try:
        found = [
            finding
            async for finding in database.examine(engine, database_url, lease_seconds=lease_seconds)
        ]
        try:
            async with engine.connect() as connection:
                known: Routes | None = await routes(connection)
        except DATABASE_ERRORS:
            known = None
    finally:
        await engine.dispose()
    return [finding async for finding in broker.examine(addresses, known)] + found


def healthy(findings: Sequence[Finding]) -> bool:
    """Tell whether nothing stands in the way of work."""
    return all(finding.level != "wrong" for finding in findings)
