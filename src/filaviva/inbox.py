"""The inbox that all consumers share: each message has its effect once per consumer.

Before: a message was delivered; its effect is in the caller's transaction, or nowhere.
After: the message is on record for this consumer, with that same commit.
May happen twice: the second time it is counted and not first any more.
"""

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncConnection

# A second delivery waits here for the first one's commit, and then counts as its duplicate.
_ENTER = """
INSERT INTO filaviva.inbox AS inbox (consumer, message_id)
SELECT $1, message_id FROM unnest($2::text[]) AS arrived(message_id)
ON CONFLICT (consumer, message_id) DO UPDATE SET duplicates = inbox.duplicates + 1
RETURNING message_id, duplicates = 0 AS first
"""


async def enter(
    connection: AsyncConnection, consumer: str, message_ids: Iterable[str]
) -> frozenset[str]:
    """Record these messages for the consumer; give those that are here for the first time."""
    # Twice the same key in one upsert is an error for ever; one order for all avoids deadlocks.
    wanted = sorted(set(message_ids))
    if not wanted:
        return frozenset()
    entered = await connection.exec_driver_sql(_ENTER, (consumer, wanted))
    return frozenset(row.message_id for row in entered if row.first)
