"""Wait for jobs to change: one shared question for all who wait, hurried by notifications.

NOTIFY is a hint that may be lost; the question is asked in any case, each 0.25 to 1 s.
"""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.operations import jobs
from filaviva.service import first_of, wait

_SOONEST = 0.02
_FAST = 0.25
_SLOW = 1.0


@dataclass(eq=False, slots=True)
class _Waiter:
    job_id: UUID
    version: str
    changed: asyncio.Future[bool]


class Watch:
    """Those who wait for a job to change, and the loop that tells them."""

    def __init__(self, engine: AsyncEngine, *, most: int = 5000) -> None:
        self._engine = engine
        self._most = most
        self._waiters: set[_Waiter] = set()
        self._some = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopping = False

    @property
    def waiting(self) -> frozenset[UUID]:
        """The jobs that somebody waits for."""
        return frozenset(waiter.job_id for waiter in self._waiters)

    async def changed(self, job_id: UUID, version: str, seconds: float) -> bool:
        """Return True once the row has another version, False when the time is up (or we stop)."""
        if self._stopping or seconds <= 0 or len(self._waiters) >= self._most:
            return False
        waiter = _Waiter(job_id, version, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        self._some.set()
        try:
            async with asyncio.timeout(seconds):
                return await waiter.changed
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)

    def heard(self, _payload: str | None) -> None:
        """Take a notification: ask again at once."""
        self._hurry.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Tell waiters until stopped; then let all of them go."""
        try:
            await self._poll(stop)
        finally:
            self._stopping = True
            for waiter in self._waiters:
                _tell(waiter, changed=False)

    async def _poll(self, stop: asyncio.Event) -> None:
        pause = _FAST
        while not stop.is_set():
            if not self._waiters:
                self._some.clear()
                await first_of(self._some, stop)
            told = await self.step()
            pause = _FAST if told else min(2 * pause, _SLOW)
            await wait(stop, _SOONEST)
            await first_of(self._hurry, stop, seconds=pause)

    async def step(self) -> int:
        """Ask once for all; return how many were told that their job changed."""
        self._hurry.clear()
        asked = list(self._waiters)
        if not asked:
            return 0
        ids = {waiter.job_id for waiter in asked}
        try:
            async with self._engine.connect() as connection:
                versions = await jobs.row_versions(connection, list(ids))
        except DATABASE_ERRORS:
            return 0  # whoever waits goes on waiting
        told = [waiter for waiter in asked if versions.get(waiter.job_id) != waiter.version]
        for waiter in told:
            _tell(waiter, changed=True)
        return len(told)


def _tell(waiter: _Waiter, *, changed: bool) -> None:
    if not waiter.changed.done():
        waiter.changed.set_result(changed)
