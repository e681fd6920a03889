"""Give the turns: keep each queue short but never dry, and choose fairly who comes next.

Before: jobs wait in the table `turns`; no wake-up of theirs is issued. After: the wake-ups of the
next ones are in the outbox, one transaction per queue.
May happen twice: a row that was taken is gone; two who both give turns give a few too many.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.errors import Unreachable
from filaviva.failpoints import passing
from filaviva.limits import TenantLimits
from filaviva.outbox import OutboxRow
from filaviva.pace import Pace
from filaviva.service import wait
from filaviva_retry_scheduler import waiting
from filaviva_retry_scheduler.depths import Depths
from filaviva_retry_scheduler.facts import Listener, TurnsGiven, unheard
from filaviva_retry_scheduler.shares import Shares, class_of
from filaviva_retry_scheduler.waiting import START, Place, Taken, Waiting

log = structlog.get_logger("filaviva")

_LEASE_SECONDS = 3.0
_RENEW_SECONDS = 1.0
_ABSENT_SECONDS = 5.0
# In one transaction; a queue that takes more gets the rest a moment later.
_MOST_AT_ONCE = 1000


@dataclass(slots=True)
class Line:
    """What this process knows of one queue."""

    pace: Pace = field(default_factory=Pace)
    shares: Shares = field(default_factory=Shares)
    sent: frozenset[int] = frozenset()  # outbox rows that the broker may not have yet


class Dispatcher:
    """One of the processes gives the turns; the others watch for its end."""

    def __init__(  # noqa: PLR0913 - what it works with, and its pace
        self,
        engine: AsyncEngine,
        depths: Depths,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        limits: TenantLimits,
        *,
        keeper: str,
        listener: Listener = unheard,
        pause: float = 0.1,
        idle_pause: float = 0.25,
        most_lines: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._depths = depths
        self._hand_over = hand_over
        self._limits = limits
        self._keeper = keeper
        self._listener = listener
        self._pause = pause
        self._idle_pause = idle_pause
        self._most_lines = most_lines
        self._clock = clock
        self._kept_until = float("-inf")
        self._renew_at = float("-inf")
        self._lines: dict[str, Line] = {}
        self._busy = False
        self._absent: dict[str, float] = {}
        self._after: Place = START

    async def run(self, stop: asyncio.Event) -> None:
        """Give turns until stopped."""
        while not stop.is_set():
            await self.step()
            await wait(stop, self._pause if self._busy else self._idle_pause)
        await self._leave()

    async def step(self) -> int:
        """Give one round of turns; return how many."""
        try:
            return await self._round() if await self._keeps() else 0
        except Unreachable as silent:
            log.info("no turns while the broker is unreachable", why=str(silent)[:200])
        except DATABASE_ERRORS as failed:
            log.warning("a round of turns failed", why=said(failed))
        return 0

    async def _keeps(self) -> bool:
        now = self._clock()
        if now >= self._renew_at:
            kept = await transact(
                self._engine, lambda on: waiting.keep(on, self._keeper, _LEASE_SECONDS)
            )
            self._renew_at = now + _RENEW_SECONDS
            self._kept_until = now + _LEASE_SECONDS if kept else now
        return now < self._kept_until

    async def _round(self) -> int:
        by_queue = await self._waiting()
        self._busy = bool(by_queue)
        ready = await self._ready(by_queue)
        given = 0
        for queue in by_queue.keys() & ready.keys():
            given += await self._give(queue, by_queue[queue], ready[queue])
        return given

    async def _ready(self, queues: Collection[str]) -> Mapping[str, int]:
        """Look at these queues; at missing ones only now and then: each look costs a channel."""
        now = self._clock()
        wanted = [queue for queue in queues if self._absent.get(queue, now) <= now]
        ready = await self._depths.ready(wanted) if wanted else {}
        self._absent = {
            queue: self._absent.get(queue, now) if queue not in wanted else now + _ABSENT_SECONDS
            for queue in queues
            if queue not in ready
        }
        return ready

    async def _waiting(self) -> Mapping[str, list[Waiting]]:
        async with self._engine.connect() as connection:
            found = await waiting.lines(
                connection,
                after=self._after,
                limit=self._most_lines,
                limits=self._limits.on_runs,
            )
        by_queue: dict[str, list[Waiting]] = {}
        for line in found:
            by_queue.setdefault(line.queue, []).append(line)
        # More lines than one round holds: the next one begins where this one ended.
        last = found[-1] if len(found) == self._most_lines else None
        self._after = START if last is None else (last.queue, last.tenant, last.priority)
        return by_queue

    async def _give(self, queue: str, lines: Sequence[Waiting], ready: int) -> int:
        line = self._lines.setdefault(queue, Line())
        open_lines = [(w.tenant, w.priority) for w in lines if not self._held_back(w)]

        async def work(connection: AsyncConnection) -> Taken:
            line.sent = await waiting.unconfirmed(connection, sorted(line.sent))
            room = line.pace.seen(ready + len(line.sent), self._clock())
            if not room or not open_lines:
                return Taken((), ())
            offers = line.shares.offers(open_lines)
            most = min(room, _MOST_AT_ONCE)
            taken = await waiting.take(connection, queue, offers, most=most)
            line.shares.took(offers, Counter(taken.lines))
            passing("turn.before_commit")
            return taken

        taken = await transact(self._engine, work)
        passing("turn.committed")
        line.pace.sent(len(taken.rows))
        line.sent |= {row.id for row in taken.rows}
        self._hand_over(taken.rows)
        for name, count in Counter(class_of(priority) for _, priority in taken.lines).items():
            self._listener(TurnsGiven(name, count))
        return len(taken.rows)

    def _held_back(self, line: Waiting) -> bool:
        """Its tenant runs all it may, and has others that wait for that already."""
        return line.held_back and self._limits.tenant(line.tenant).running is not None

    async def _leave(self) -> None:
        try:
            await transact(self._engine, lambda on: waiting.leave(on, self._keeper))
        except DATABASE_ERRORS as away:
            log.info("left without a word; the others will notice", why=said(away))
