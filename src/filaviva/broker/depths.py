"""Look how many messages are ready on queues, who consumes them, and whether they exist."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from filaviva.broker.connection import (
    NOT_FOUND,
    Channel,
    Connection,
    client_errors,
    close,
    closure,
    connect,
    open_channel,
)
from filaviva.broker.topology import Topology
from filaviva.errors import Unreachable

_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Depth:
    """How a queue stands on the broker."""

    ready: int
    consumers: int


class QueueDepths:
    """Ask the broker on a connection of its own, which stays open between two looks."""

    def __init__(
        self, url: str, *, name: str = "filaviva depths", topology: Topology | None = None
    ) -> None:
        self._url = url
        self._name = name
        self._topology = topology or Topology()
        self._connection: Connection | None = None

    async def ready(self, queues: Collection[str]) -> Mapping[str, int]:
        """Give the number of ready messages of each of these handler queues that exists.

        Raises `Unreachable` when the broker does not answer.
        """
        names = {queue: self._topology.work(queue) for queue in queues}
        found = await self.waiting(names.values())
        return {queue: found[name] for queue, name in names.items() if name in found}

    async def waiting(self, names: Collection[str]) -> Mapping[str, int]:
        """Give the same of queues by their names on the broker."""
        return {name: depth.ready for name, depth in (await self.of(names)).items()}

    async def of(self, names: Collection[str]) -> Mapping[str, Depth]:
        """Give how each of these queues stands that exists, by their names on the broker.

        Raises `Unreachable` when the broker does not answer.
        """
        connection = await self._connected()
        found: dict[str, Depth] = {}
        channel: Channel | None = None
        for name in sorted(names):
            if channel is None or channel.is_closed:
                channel = await open_channel(connection, confirms=False)
            depth = await _depth(channel, name)
            if depth is not None:
                found[name] = depth
        if channel is not None:
            await close(channel)
        return found

    async def run(self, stop: asyncio.Event) -> None:
        """Close the connection when asked to stop."""
        await stop.wait()
        await self.close()

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            await close(self._connection)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed:
            self._connection = await connect(self._url, name=self._name)
        return self._connection


async def _depth(channel: Channel, name: str) -> Depth | None:
    """Ask for one queue; None when there is none, and the broker has closed the channel."""
    try:
        with client_errors():
            async with asyncio.timeout(_PATIENCE_SECONDS):
                declared = await channel.queue_declare(name, passive=True)
    except Unreachable:
        if channel.is_closed and closure(channel).code == NOT_FOUND:
            return None
        raise
    except ValueError:  # no queue can have such a name: the client library does not even ask
        return None
    return Depth(declared.message_count or 0, declared.consumer_count or 0)
