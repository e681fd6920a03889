"""What a key may still do when its job is executed: revoked, expired and limited keys in memory.

Before: a job that was submitted, perhaps long ago. After: a reason not to run it, or none.
May happen twice: each attempt asks again.
"""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.refreshing import Refreshing
from filaviva_contracts.names import event_of

CHANNEL: Final = "filaviva_keys"

# Most keys may do everything for good: only the others are kept. Expiry is the database's clock's.
_SELECT: Final = """
SELECT id, types, revoked_at IS NOT NULL, coalesce(expires_at <= clock_timestamp(), false)
FROM filaviva.api_keys
WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL OR types IS NOT NULL
"""


class Standing(Refreshing):
    """The keys that may not do everything; at most `poll` seconds old."""

    def __init__(self, engine: AsyncEngine, *, poll: float = 2) -> None:
        super().__init__(engine, CHANNEL, self._take, poll=poll)
        self._withdrawn: dict[str, str] = {}
        self._types: dict[str, frozenset[str]] = {}

    def refusal(self, key_id: str | None, job_type: str) -> str | None:
        """Say why this key's job of this type must not run; None if it may.

        Who is no key (a user of the command line) may.
        """
        if key_id is None:
            return None
        why = self._withdrawn.get(key_id)
        if why is not None:
            return f"the API key that submitted it {why}"
        types = self._types.get(key_id)
        if types is None or not types.isdisjoint((job_type, event_of(job_type))):
            return None
        return f"the API key that submitted it may not use {job_type} any more"

    async def _take(self, connection: AsyncConnection) -> None:
        rows = await fetch(connection, _SELECT)
        self._withdrawn = {
            key: "has been revoked" if revoked else "has expired"
            for key, _, revoked, expired in rows
            if revoked or expired
        }
        self._types = {key: frozenset(types) for key, types, *_ in rows if types is not None}
