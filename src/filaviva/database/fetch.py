"""Run a hand-written statement: `$1` parameters in, plain rows out."""

from collections.abc import Sequence
from typing import Any

from filaviva.database.lines import Connected, Line


async def fetch(
    connection: Connected, statement: str, arguments: tuple[Any, ...] = ()
) -> Sequence[Any]:
    """Execute one statement as the driver takes it, and give all rows."""
    if isinstance(connection, Line):
        return await connection.fetch(statement, arguments)
    result = await connection.exec_driver_sql(statement, arguments)
    return result.all() if result.returns_rows else ()
