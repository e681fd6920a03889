"""Remember who did what: one row in the transaction of the deed."""

from collections.abc import Mapping
from typing import Any

import simplejson
from sqlalchemy import func, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.tables import audit_log


async def record(  # noqa: PLR0913 - the fields of one entry
    connection: AsyncConnection,
    *,
    author: str,
    action: str,
    tenant: str | None = None,
    target: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write one line of the audit log; it shares the fate of the caller's own writes."""
    await connection.execute(
        insert(audit_log).values(
            at=func.clock_timestamp(),
            author=author,
            action=action,
            tenant=tenant,
            target=target,
            # Through simplejson: decimals and dates of the caller must not break the deed.
            data=simplejson.loads(simplejson.dumps(dict(detail or {}), default=str)),
        )
    )
