"""Who has sent which version of a contract, as the services have counted it by day."""

from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.operations.figures import moment

_USES: Final = """
SELECT type, version, source, sum(uses)::bigint, max(last_at)
FROM filaviva.contract_uses
WHERE day > (now() AT TIME ZONE 'UTC')::date - $1::int
    AND ($2::text IS NULL OR type = $2) AND ($3::int IS NULL OR version = $3)
GROUP BY type, version, source ORDER BY type, version, sum(uses) DESC, source
"""


async def uses(
    connection: AsyncConnection, *, kind: str | None, version: int | None, days: int
) -> list[dict[str, Any]]:
    """Give them by type, version and sender, the busiest first."""
    return [
        {
            "type": type_,
            "version": number,
            "source": source,
            "uses": count,
            "lastAt": moment(last),
        }
        for type_, number, source, count, last in await fetch(
            connection, _USES, (days, kind, version)
        )
    ]
