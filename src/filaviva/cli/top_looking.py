"""Look again and again at the database and the broker, whether they are there or not."""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.broker.depths import QueueDepths
from filaviva.broker.topology import Topology
from filaviva.cli.acting import ours
from filaviva.cli.top_view import Seen
from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.errors import Unreachable
from filaviva.operations import overview
from filaviva.operations.overview import stuck
from filaviva.operations.overview.figures import Chosen, Overview
from filaviva.operations.overview.stuck import Depths, Stuck

_TOPOLOGY: Final = Topology()
_PATIENCE: Final = 3.0
# A look may have one part in twenty of the time, however much there is to see.
_REST: Final = 20.0


class Looking:
    """What was seen last of both; what cannot be seen now stays as it was, with its age."""

    def __init__(
        self, engine: AsyncEngine, url: str, depths: QueueDepths | None, chosen: Chosen
    ) -> None:
        self._engine = engine
        self._url = url
        self._queues = depths
        self._chosen = chosen
        self._overview: Overview | None = None
        self._stuck: Sequence[Stuck] = ()
        self._at = 0.0
        self._depths: Depths | None = None
        self._depths_at = 0.0
        self._away: str | None = None
        self._broker_away: str | None = None
        self._took: deque[float] = deque([0.0], maxlen=3)

    @property
    def seen(self) -> Seen:
        """Give what was seen last."""
        now = time.monotonic()
        return Seen(
            overview=self._overview,
            stuck=self._stuck,
            age=now - self._at,
            away=self._away,
            depths=self._depths,
            depths_age=now - self._depths_at,
            broker_away=self._broker_away,
            chosen=self._chosen,
        )

    def rest(self, interval: float) -> float:
        """Say in how many seconds to look again."""
        return max(interval, min(self._took) * _REST)

    async def look(self) -> Overview:
        """Look at the database, then at the broker's queues; what the database says is raised."""
        began = time.monotonic()
        async with asyncio.timeout(_PATIENCE), self._engine.begin() as connection:
            found = await overview.look(connection, self._chosen)
        self._overview, self._at, self._away = found, time.monotonic(), None
        self._took.append(self._at - began)
        await self._measure([queue.name for queue in found.queues])
        self._stuck = stuck.find(found, None if self._broker_away else self._depths)
        return found

    async def try_to(self) -> None:
        """Look; note who is away."""
        try:
            await self.look()
        except DATABASE_ERRORS as away:
            self._away = str(ours(away, self._url))
            known = [] if self._overview is None else [q.name for q in self._overview.queues]
            await self._measure(known)

    async def _measure(self, queues: Collection[str]) -> None:
        if self._queues is None:
            return
        names = {_TOPOLOGY.work(queue) for queue in queues}
        names |= {_TOPOLOGY.retry_requests, _TOPOLOGY.dead_letters}
        try:
            async with asyncio.timeout(_PATIENCE):
                self._depths = await self._queues.of(names)
        except (Unreachable, TimeoutError) as away:
            self._broker_away = str(away) or "no answer"
        else:
            self._depths_at, self._broker_away = time.monotonic(), None
