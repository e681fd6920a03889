"""How PostgreSQL itself is: the sizes of our tables, who is connected, what holds vacuum up.

Before: nothing. After: the figures that tell of the server. May happen twice: it only reads.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.telemetry.figures import Values

_TABLES: Final = """
SELECT relname::text, n_live_tup, n_dead_tup, pg_total_relation_size(relid)
FROM pg_stat_user_tables WHERE schemaname = 'filaviva'
"""
# What other users do is hidden from who may not look, and then has no state.
_CONNECTIONS: Final = """
SELECT coalesce(state, 'hidden'), count(*),
    extract(epoch FROM min(xact_start) FILTER (WHERE pid <> pg_backend_pid()))::float8
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' GROUP BY 1
"""
_STATES: Final = ("active", "idle", "idle in transaction")


async def count(connection: AsyncConnection) -> Mapping[str, Values]:
    """Look once."""
    rows: dict[tuple[str, ...], float] = {}
    sizes: dict[tuple[str, ...], float] = {}
    for table, live, dead, size in await fetch(connection, _TABLES):
        rows[table, "live"], rows[table, "dead"], sizes[table,] = live, dead, size
    connections: dict[tuple[str, ...], float] = {(_word(state),): 0.0 for state in _STATES}
    began: list[float] = []
    for state, many, since in await fetch(connection, _CONNECTIONS):
        connections[_word(state),] = many
        began += [] if since is None else [since]
    return {
        "table_rows": rows,
        "table_bytes": sizes,
        "database_connections": connections,
        "database_transaction_oldest_timestamp_seconds": {(): min(began, default=0.0)},
    }


def _word(state: str) -> str:
    return state.replace(" ", "_")
