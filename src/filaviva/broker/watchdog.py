"""Tell a deaf consumer from one that has nothing to do.

After a consumer timeout RabbitMQ 4.3 may keep a consumer that it never delivers to again; its
count of consumers does not show it.
"""

import asyncio

from filaviva.broker.connection import Channel, Connection, Declined, client_errors, open_channel
from filaviva.broker.session import Session

_PATIENCE_SECONDS = 10.0
_LOOKS = 2  # a message may have become ready this very moment


class Watchdog:
    """Watches one consumer's queue from a channel of its own."""

    def __init__(self, connection: Connection, queue: str, *, deaf_after: float) -> None:
        self._connection = connection
        self._queue = queue
        self._deaf_after = deaf_after
        self._channel: Channel | None = None
        self._suspicions = 0

    @property
    def every_seconds(self) -> float:
        """How often to look."""
        return self._deaf_after / 3

    async def deaf(self, session: Session) -> bool:
        """Tell whether messages are ready, there is room for them, and none has come for long."""
        if session.quiet_seconds < self._deaf_after or await self._ready() == 0:
            self._suspicions = 0
            return False
        self._suspicions += 1
        return self._suspicions >= _LOOKS

    async def _ready(self) -> int:
        if self._channel is None or self._channel.is_closed:
            self._channel = await open_channel(self._connection, confirms=False)
        try:
            with client_errors():
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    declared = await self._channel.queue_declare(self._queue, passive=True)
        except Declined:
            return 0  # no queue: the consumer is told by a cancel; no right: nothing to see here
        return declared.message_count or 0
