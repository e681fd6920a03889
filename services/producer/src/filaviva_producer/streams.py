"""Tell many who follow jobs what is new: one shared question for all, hurried by notifications.

Before: followers, each at its position in a timeline. After: each has what came after that, in
order, once. May happen twice: the database is asked again after the position, nothing is kept.
NOTIFY is a hint that may be lost; all are asked for in any case, twice a second.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.notify import EVERYTHING
from filaviva.operations import timelines
from filaviva.operations.jobs import Event
from filaviva.operations.timelines import News
from filaviva.service import wait

_SOONEST = 0.02
_EACH = 0.5
_JOBS = 200  # in one question
_ENTRIES = 100  # of one job in one question


@dataclass(eq=False, slots=True)
class Follower:
    """One stream: its position in a job's timeline and what it has not sent yet.

    It is given nothing more until it has taken what it was given: a slow client holds one batch
    here, and the rest waits in the database.
    """

    job_id: UUID
    position: int
    hurry: Callable[[], None]
    _given: list[Event] = field(default_factory=list)
    _behind: bool = False
    _ended: bool = False
    _left: bool = False
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def over(self) -> bool:
        """Tell whether everything was taken and nothing will come any more."""
        return self._left or (self._ended and not self._given)

    @property
    def left(self) -> bool:
        """Tell whether it was ended before its job had."""
        return self._left

    def hungry(self) -> bool:
        """Tell whether it may be given more; otherwise it asks for it once it has taken."""
        self._behind = self._behind or bool(self._given)
        return not (self._given or self._ended or self._left)

    def give(self, news: News) -> bool:
        """Add what is new to it; tell whether there was anything."""
        fresh = [entry for entry in news.entries if entry.id > self.position]
        if fresh:
            self._given, self.position = fresh, fresh[-1].id
        self._behind, self._ended = news.more, news.ended
        if fresh or news.ended:
            self._stirred.set()
        elif news.more:
            self.hurry()
        return bool(fresh)

    def leave(self) -> None:
        """End it before its job has: the client has gone, or we stop."""
        self._left = True
        self._stirred.set()

    async def take(self, seconds: float) -> list[Event]:
        """Wait so long for something new and give it; empty: nothing came, or it is `over`."""
        try:
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
        except TimeoutError:
            return []
        self._stirred.clear()
        taken, self._given = self._given, []
        if self._behind:
            self._behind = False
            self.hurry()
        return taken


class Streams:
    """Those who follow jobs, and the loop that tells them what is new."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._followers: dict[UUID, set[Follower]] = {}
        self._changed: set[UUID] = set()
        self._stirred = asyncio.Event()
        self._stopping = False

    @contextlib.contextmanager
    def following(self, job_id: UUID, position: int) -> Iterator[Follower]:
        """Follow a job from a position in its timeline on, for as long as the block runs."""
        follower = Follower(job_id, position, lambda: self.changed((job_id,)))
        self._followers.setdefault(job_id, set()).add(follower)
        if self._stopping:
            follower.leave()
        self.changed((job_id,))
        try:
            yield follower
        finally:
            self._forget(follower)

    def _forget(self, follower: Follower) -> None:
        others = self._followers[follower.job_id]
        others.discard(follower)
        if not others:
            del self._followers[follower.job_id]

    def changed(self, job_ids: Collection[UUID]) -> None:
        """Read on soon in these timelines, where somebody follows."""
        self._changed.update(self._followers.keys() & job_ids)
        if self._changed:
            self._stirred.set()

    def heard(self, payload: str | None) -> None:
        """Take a notification: which jobs changed, or that any of them may have."""
        if payload is None or payload == EVERYTHING:
            self.changed(self._followers.keys())
        else:
            self.changed({UUID(one) for one in payload.split(",")})

    async def run(self, stop: asyncio.Event) -> None:
        """Tell followers until stopped; then let all of them go, even if the database hangs."""
        reading = asyncio.create_task(self._read(stop), name="streams reading")
        try:
            await _either(reading, stop)
        finally:
            self._stopping = True
            for followers in self._followers.values():
                for follower in followers:
                    follower.leave()
            reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading

    async def _read(self, stop: asyncio.Event) -> None:
        looked = time.monotonic()
        while not stop.is_set():
            await wait(self._stirred, looked + _EACH - time.monotonic())
            if time.monotonic() >= looked + _EACH:
                looked = time.monotonic()
                self.changed(self._followers.keys())
            await self.step()
            await wait(stop, _SOONEST)

    async def step(self) -> int:
        """Read on once in the timelines that changed; return how many followers were told."""
        asked = self._next()
        if not asked:
            return 0
        after = {job_id: min(one.position for one in some) for job_id, some in asked.items()}
        try:
            async with self._engine.connect() as connection:
                found = await timelines.news(connection, after, most=_ENTRIES)
        except DATABASE_ERRORS:
            return 0  # who follows goes on waiting; the next round asks again
        return sum(one.give(news) for job_id, news in found.items() for one in asked[job_id])

    def _next(self) -> dict[UUID, list[Follower]]:
        asked: dict[UUID, list[Follower]] = {}
        while self._changed and len(asked) < _JOBS:
            job_id = self._changed.pop()
            if hungry := [one for one in self._followers.get(job_id, ()) if one.hungry()]:
                asked[job_id] = hungry
        if not self._changed:
            self._stirred.clear()
        return asked


async def _either(reading: asyncio.Task[None], stop: asyncio.Event) -> None:
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
