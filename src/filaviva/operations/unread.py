"""What waits in the broker and no service has read yet: which versions may be among it.

Before: the registry is as the release that runs has published it, the next one would read less.
After: each version that would be stranded, with the queues that may hold messages of it.
May happen twice: it only counts; nothing is taken out of a queue, put back or reordered.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.app import App
from filaviva.broker.topology import Topology
from filaviva.operations.in_flight import InFlight, Owners, reader

_AGAIN: Final = 0.2

# Events come to where their handler is, and may still lie where it was. A job's wake-up carries no
# version, and the job is in the database; only its letter may be on its way.
_HANDLERS: Final = """
SELECT type, coalesce(event, type) AS carries, version, app,
    CASE WHEN event IS NULL THEN '{}' ELSE ARRAY[queue, coalesce(inbox_queue, queue)] END AS queues
FROM filaviva.contracts
WHERE deprecated_at IS NULL AND queue IS NOT NULL AND type NOT LIKE 'filaviva.%'
ORDER BY type, version
"""


class Depths(Protocol):
    """Count what is ready in queues."""

    async def waiting(self, names: Collection[str]) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class Suspect:
    """A version that would not be read, and where messages of it may wait."""

    type: str
    version: int
    app: str
    queues: tuple[str, ...]


async def suspects(
    connection: AsyncConnection, app: App | None, topology: Topology | None = None
) -> list[Suspect]:
    """Find what is published now, and would not be read; without an app, by the workers that run.

    There are none where a release reads all that is there: then nobody need look at the broker.
    """
    names, read = topology or Topology(), await reader(connection, app)
    found: dict[tuple[str, int, str], set[str]] = {}
    for row in await connection.exec_driver_sql(_HANDLERS):
        if read(row.type, row.version, Owners((row.app,), live=True)) == "no":
            queues = found.setdefault((row.carries, row.version, row.app), set())
            queues |= {names.dead_letters, names.unroutable, *map(names.work, row.queues)}
    return [Suspect(*key, tuple(sorted(queues))) for key, queues in sorted(found.items())]


async def unread(found: Iterable[Suspect], depths: Depths, *, seconds: float) -> list[InFlight]:
    """Wait until each of their queues was empty once, at most so long; give what may still wait.

    What lay in a queue that is empty has been read: it is in the database, or milliseconds off.
    """
    several = list(found)
    left = await _left(depths, {queue for one in several for queue in one.queues}, seconds)
    return [
        InFlight(
            type=one.type,
            version=one.version,
            place="broker",
            queue=queue,
            messages=left[queue],
            oldest=None,
            apps=(one.app,),
            readable="no",
        )
        for one in several
        for queue in one.queues
        if queue in left
    ]


async def _left(depths: Depths, queues: Collection[str], seconds: float) -> Mapping[str, int]:
    until = time.monotonic() + seconds
    left: Mapping[str, int] = dict.fromkeys(queues, 0)
    while left:
        counts = await depths.waiting(left)
        left = {queue: count for queue, count in counts.items() if count}
        if time.monotonic() >= until:
            break
        if left:
            await asyncio.sleep(_AGAIN)
    return left
