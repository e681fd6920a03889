"""Gathering: while wake-ups flow, let a few more come before they are claimed together.

A claim and a completion cost a statement each, as much as some twenty jobs; and what is settled
together comes back together, so that small claims would stay small.
"""

import asyncio
import time

from filaviva.service import first_of

_FLOWING = 4  # in the last claim
_RECENT = 0.01  # seconds
_ENOUGH = 64
_PATIENCE = 0.004  # seconds; nobody sees them where hundreds come in a second


class Gathering:
    """Tell when to claim; a lone wake-up is never kept waiting."""

    def __init__(self) -> None:
        self._last = 0
        self._last_at = 0.0
        self._wanted = _ENOUGH
        self._enough = asyncio.Event()

    def arrived(self, waiting: int) -> None:
        """Say how many wait now."""
        if waiting >= self._wanted:
            self._enough.set()

    def claimed(self, count: int) -> None:
        """Say how many were claimed together."""
        self._last, self._last_at = count, time.monotonic()

    async def wait(self, waiting: int, room: int, stop: asyncio.Event) -> None:
        """Return when it pays to claim: at once unless wake-ups flow."""
        self._wanted = min(room, _ENOUGH)
        flowing = self._last >= _FLOWING and time.monotonic() - self._last_at < _RECENT
        if flowing and waiting < self._wanted:
            self._enough.clear()
            await first_of(self._enough, stop, seconds=_PATIENCE)
