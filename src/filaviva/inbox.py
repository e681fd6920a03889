"""The inbox that all consumers share: each message has its effect once per consumer.

Before: a message was delivered; its effect is in the caller's transaction, or nowhere.
After: the message is on record for this consumer, with that same commit.
May happen twice: the second time it is counted and not first any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

# A second delivery waits here for the first one's commit, and then counts as its duplicate.
_ENTER = """
INSERT INTO filaviva.inbox AS inbox (consumer, message_id)
SELECT $1, message_id FROM unnest($2::text[]) AS arrived(message_id)
ON CONFLICT (consumer, message_id) DO UPDATE SET duplicates = inbox.duplicates + 1
RETURNING message_id, duplicates = 0 AS first
"""


_ENTER_ONE = """
INSERT INTO filaviva.inbox AS inbox (consumer, message_id, body_hash) VALUES ($1, $2, $3)
ON CONFLICT (consumer, message_id) DO UPDATE SET duplicates = inbox.duplicates + 1
RETURNING duplicates = 0 AS first, body_hash
"""


@dataclass(frozen=True, slots=True)
class Known:
    """A message in the inbox: here for the first time or not, and what it was then."""

    first: bool
    body_hash: bytes


async def enter_with_hash(
    connection: AsyncConnection, consumer: str, message_id: str, body_hash: bytes
) -> Known:
    """Record one message for the consumer; the hash that is kept is the first one's."""
    entered = await connection.exec_driver_sql(_ENTER_ONE, (consumer, message_id, body_hash))
    row = entered.one()
    return Known(row.first, bytes(row.body_hash))


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
