"""What the demonstration reads in PostgreSQL itself, past all services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import asyncpg


@dataclass(frozen=True, slots=True)
class Stored:
    """What is in the user's table."""

    rows: int
    keys: int
    access_keys: int
    total: Decimal


@dataclass(frozen=True, slots=True)
class Running:
    """A running job, its process, and whether all that is left to do is to store it."""

    job_id: str
    pid: int
    checked: bool


class Truth:
    """One connection to the database of a stack."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def stored(self) -> Stored:
        """Count the rows, and how many of them differ."""
        row = await self._connection.fetchrow(
            "SELECT count(*), count(DISTINCT key), count(DISTINCT access_key),"
            " coalesce(sum(total), 0) FROM invoices.documents"
        )
        return Stored(*row)

    async def workers(self) -> int:
        """Count the workers that have reported."""
        query = "SELECT count(*) FROM filaviva.workers WHERE stopped_at IS NULL"
        return int(await self._connection.fetchval(query))

    async def running(self) -> list[Running]:
        """Return every running job."""
        rows = await self._connection.fetch(
            "SELECT a.job_id::text, w.pid, s.finished_at IS NOT NULL"
            " FROM filaviva.attempts a"
            " JOIN filaviva.workers w ON w.id = a.worker"
            " LEFT JOIN filaviva.steps s ON s.job_id = a.job_id AND s.name = 'check'"
            " WHERE a.finished_at IS NULL"
        )
        return [Running(*row) for row in rows]

    @asynccontextmanager
    async def holding_the_table(self) -> AsyncIterator[None]:
        """Keep everybody from storing for the length of the block."""
        async with self._connection.transaction():
            await self._connection.execute("LOCK TABLE invoices.documents IN SHARE MODE")
            yield


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Truth]:
    """Connect to the database at this URL."""
    connection = await asyncpg.connect(url)
    try:
        yield Truth(connection)
    finally:
        await connection.close()
