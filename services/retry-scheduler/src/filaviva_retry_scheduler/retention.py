"""The loop that removes what need not be kept any longer, in any number of processes at once.

Before: rows are older than the settings and their type's policy say.
After: they are gone, in small transactions that wait for nobody.
May happen twice: any number of loops skip each other's rows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS, said, transact, unreachable
from filaviva.failpoints import passing
from filaviva.service import wait
from filaviva.settings import RetentionGroup
from filaviva_retry_scheduler import ageing, removing
from filaviva_retry_scheduler.facts import Listener, RowsRemoved, unheard
from filaviva_retry_scheduler.removing import Aged

log = structlog.get_logger("filaviva")

_NOBODY: Final = UUID(int=0)
_SHORTEST = """
SELECT now(), min((policy->>'retentionDays')::float8) FROM filaviva.contracts
"""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much goes in one transaction, and the pauses: between turns, and once all is done."""

    jobs: int = 500
    rows: int = 1000
    blocks: int = 512
    breath: float = 0.2
    pause: float = 600


class Retention:
    """Walk through the jobs and the inbox a page a turn, again and again; nothing is in a hurry."""

    def __init__(
        self,
        engine: AsyncEngine,
        periods: RetentionGroup,
        *,
        pace: Pace | None = None,
        listener: Listener = unheard,
    ) -> None:
        self._engine = engine
        self._periods = periods
        self._pace = pace or Pace()
        self._state = listener
        self._job = _NOBODY
        self._block = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Remove until stopped."""
        while not stop.is_set():
            more = await self.step()
            await wait(stop, self._pace.breath if more else self._pace.pause)

    async def step(self) -> int:
        """Do one turn of each duty; return how much it went through, 0 at the end of a walk."""
        done = 0
        for duty in self._duties:
            try:
                done += await duty()
            except DATABASE_ERRORS as failed:
                log.warning("a duty of the retention failed", duty=duty.__name__, why=said(failed))
                if unreachable(failed):
                    return 0
        return done

    @property
    def _duties(self) -> tuple[Callable[[], Coroutine[Any, Any, int]], ...]:
        return (
            self._jobs,
            self._inbox,
            self._letters,
            self._audit,
            self._tombstones,
            self._keys,
            self._uses,
            self._samples,
            self._contents,
            self._workers,
            self._processes,
        )

    async def _jobs(self) -> int:
        found = await transact(self._engine, self._page)
        for family in _portions([each for each in found if each.whole], self._pace.jobs):
            await self._remove(family)
        parts = [each for each in found if each.kinds and not each.whole]
        if parts:
            await self._count("parts", lambda on: removing.trim(on, parts))
        full = len(found) == self._pace.jobs
        self._job = found[-1].id if full else _NOBODY
        return len(found) if full else 0

    async def _page(self, connection: AsyncConnection) -> list[Aged]:
        ((now, shortest),) = await fetch(connection, _SHORTEST)
        kinds = _kinds(self._periods)
        days = min(shortest or self._periods.jobs_days, self._periods.jobs_days)
        days = min([days, *(each for _, each in kinds)])
        return await removing.page(
            connection,
            after=self._job,
            before=_first_of(now - timedelta(days=days)),
            limit=self._pace.jobs,
            jobs_days=self._periods.jobs_days,
            kinds=kinds,
        )

    async def _remove(self, family: Sequence[Aged]) -> None:
        await self._count("jobs", lambda on: removing.remove(on, family))

    async def _inbox(self) -> int:
        blocks = await transact(self._engine, ageing.inbox_blocks)
        first, last = self._block, self._block + self._pace.blocks
        days = self._periods.inbox_days
        await self._count("inbox", lambda on: ageing.inbox(on, first, last, days))
        self._block = last if last < blocks else 0
        return self._block

    async def _letters(self) -> int:
        days, limit = self._periods.dead_letters_days, self._pace.rows
        return await self._count("dead_letters", lambda on: ageing.dead_letters(on, days, limit))

    async def _audit(self) -> int:
        days, limit = self._periods.audit_days, self._pace.rows
        return await self._count("audit_log", lambda on: ageing.audit_log(on, days, limit))

    async def _tombstones(self) -> int:
        days, limit = self._periods.tombstones_days, self._pace.rows
        return await self._count("tombstones", lambda on: ageing.tombstones(on, days, limit))

    async def _keys(self) -> int:
        limit = self._pace.rows
        return await self._count("submission_keys", lambda on: ageing.submission_keys(on, limit))

    async def _uses(self) -> int:
        days, limit = self._periods.audit_days, self._pace.rows
        return await self._count("contract_uses", lambda on: ageing.contract_uses(on, days, limit))

    async def _contents(self) -> int:
        days, limit = self._periods.contents_days, self._pace.rows
        return await self._count("contents", lambda on: ageing.contents(on, days, limit))

    async def _workers(self) -> int:
        days, limit = self._periods.workers_days, self._pace.rows
        return await self._count("workers", lambda on: ageing.workers(on, days, limit))

    async def _processes(self) -> int:
        days, limit = self._periods.workers_days, self._pace.rows
        return await self._count("processes", lambda on: ageing.processes(on, days, limit))

    async def _samples(self) -> int:
        days, limit = self._periods.samples_days, self._pace.rows
        return await self._count(
            "contract_samples", lambda on: ageing.contract_samples(on, days, limit)
        )

    async def _count(self, what: str, work: Callable[[AsyncConnection], Awaitable[int]]) -> int:
        async def before_commit(connection: AsyncConnection) -> int:
            removed = await work(connection)
            if removed:
                passing("retention.before_commit")
            return removed

        removed = await transact(self._engine, before_commit)
        if removed:
            self._state(RowsRemoved(what, removed))
        return removed


def _kinds(periods: RetentionGroup) -> list[tuple[str, float]]:
    named = {
        "payload": periods.payloads_days,
        "result": periods.results_days,
        "steps": periods.steps_days,
        "events": periods.events_days,
        "attempts": periods.attempts_days,
        "llm_calls": periods.llm_calls_days,
    }
    return [(kind, days) for kind, days in named.items() if days is not None]


def _first_of(moment: datetime) -> UUID:
    """Give the least id that a job made at this moment can have."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


def _portions(families: Sequence[Aged], most: int) -> Iterator[list[Aged]]:
    """Cut into transactions: a batch goes as a whole, however large, but then alone."""
    portion: list[Aged] = []
    size = 0
    for each in families:
        if portion and size + 1 + each.items > most:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += 1 + each.items
    if portion:
        yield portion
