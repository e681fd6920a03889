"""Discard a dead letter: somebody decides that it needs nothing any more."""

from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.errors import Rejected
from filaviva.operations import audit, dead_letters, failure_groups
from filaviva.operations.reach import EVERYTHING, Reach

# Conditional: of two people, or a replay and a discard at once, one wins and the other is told.
_DISCARD = """
UPDATE filaviva.dead_letters SET status = 'discarded', closed_at = clock_timestamp()
WHERE id = $1 AND status = 'open' RETURNING group_id
"""


async def discard(
    connection: AsyncConnection,
    letter_id: UUID,
    *,
    author: str,
    reason: str,
    reach: Reach = EVERYTHING,
) -> dict[str, object]:
    """Close an open letter for good; its job stays failed. Refused (409) in any other status."""
    letter = await dead_letters.get(connection, letter_id, reach=reach)
    done = (await connection.exec_driver_sql(_DISCARD, (letter_id,))).first()
    if done is None:
        found = (await dead_letters.get(connection, letter_id, reach=reach))["status"]
        detail = f"dead letter {letter_id} is {found}, expected open"
        raise Rejected("conflict", detail, status=409)
    await audit.record(
        connection,
        author=author,
        action="dead_letter.discarded",
        tenant=letter["tenant"],
        target=str(letter_id),
        detail={"reason": reason},
    )
    await failure_groups.settle(connection, [done.group_id])
    return await dead_letters.get(connection, letter_id, reach=reach)
