"""Tell a job that is gone from one that never was."""

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.tables import tombstones
from filaviva.errors import Gone, NotFound
from filaviva.operations.reach import of_types


async def absent(
    connection: AsyncConnection,
    job_id: UUID,
    tenant: str | None = None,
    types: Collection[str] | None = None,
) -> NotFound:
    """Give the error for a job that is not there: Gone if it was removed, to whoever may know.

    Without a tenant: to somebody who may see everybody's.
    """
    grave = tombstones.c
    theirs = true() if tenant is None else grave.tenant == tenant
    typed = true() if types is None else of_types(grave.type, types)
    wanted = select(grave.gone_at).where(grave.job_id == job_id, theirs, typed)
    gone_at = await connection.scalar(wanted)
    if gone_at is None:
        return NotFound(f"there is no job {job_id}")
    return Gone(f"job {job_id} was removed on {gone_at:%Y-%m-%d}: it had been kept for long enough")
