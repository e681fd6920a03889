"""Release whom a limit kept back as soon as a place is free.

A process that dies in between loses only time: one that polls looks at every tenant.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.limits import TenantLimits
from filaviva.operations import places
from filaviva.outbox import OutboxRow
from filaviva.service import first_of, wait

log = structlog.get_logger("filaviva")

_TOGETHER_SECONDS = 0.01


class Releasing:
    """Collect tenants whose runs ended here; with `poll`, look at all tenants now and then."""

    def __init__(
        self,
        engine: AsyncEngine,
        limits: TenantLimits,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        *,
        poll: float | None = None,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._hand_over = hand_over
        self._poll = poll
        self._tenants: set[str] = set()
        self._some = asyncio.Event()

    def ended(self, tenants: Iterable[str]) -> None:
        """Remember that runs of these tenants ended, after the commit."""
        if self._limits.on_runs:
            self._tenants.update(filter(self._limits.limits_runs_of, tenants))
            if self._tenants:
                self._some.set()

    def hurry(self) -> None:
        """Look at every tenant now: it is not known whose runs have ended."""
        if self._limits.on_runs:
            self._some.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Release until stopped."""
        while not stop.is_set():
            await self._next_turn(stop)
            self._some.clear()
            if not stop.is_set() and await self.step() < places.MOST:
                await wait(stop, _TOGETHER_SECONDS)

    async def _next_turn(self, stop: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._poll):
                await first_of(self._some, stop)
        except TimeoutError:
            pass

    async def step(self) -> int:
        """Release once for each tenant concerned; return how many jobs."""
        tenants, self._tenants = self._tenants, set()
        released = 0
        try:
            if self._poll is not None:
                tenants |= set(await transact(self._engine, places.tenants_kept_back))
            for tenant in sorted(tenants):
                released += await self._release(tenant)
        except DATABASE_ERRORS as failed:
            log.info("places are given later", why=said(failed))
        return released

    async def _release(self, tenant: str) -> int:
        async def work(connection: AsyncConnection) -> list[OutboxRow]:
            return await places.release(connection, self._limits, tenant)

        rows = await transact(self._engine, work)
        self._hand_over(rows)
        return len(rows)
