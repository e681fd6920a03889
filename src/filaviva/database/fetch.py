"""Run a hand-written statement: `$1` parameters in, plain rows out."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection


async def fetch(
    connection: AsyncConnection, statement: str, arguments: tuple[Any, ...] = ()
) -> Sequence[Any]:
    """Execute one statement as the driver takes it, and give all rows."""
    result = await connection.exec_driver_sql(statement, arguments)
    return result.all() if result.returns_rows else ()
