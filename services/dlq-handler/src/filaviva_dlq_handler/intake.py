"""Take in what died: whatever is ready, in one commit; then it is settled.

Before: deliveries of the dead letters and of the unroutable messages.
After: they are filed, and acknowledged after the commit, never before.
May happen twice: a commit whose acknowledgement was lost comes again and finds itself filed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import failpoints
from filaviva.broker.consumer import Delivery
from filaviva.broker.topology import Topology
from filaviva.database.transaction import DATABASE_ERRORS, said, transact, unreachable
from filaviva.errors import Flaw
from filaviva.events import NOBODY, Publishers
from filaviva.registry import Registry
from filaviva.service import first_of, wait
from filaviva_dlq_handler import job_rows
from filaviva_dlq_handler.arrival import Arrival, read
from filaviva_dlq_handler.filing import Filed, file
from filaviva_dlq_handler.judge import Knowledge

log = structlog.get_logger("filaviva")

_MOST = 100
_MOST_BYTES = 32 * 1024 * 1024
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Received:
    delivery: Delivery
    queue: str
    settle: Callable[[Delivery], object]


class Intake:
    """File deliveries in batches; what cannot be filed now is kept and tried again."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        engine: AsyncEngine,
        registry: Registry,
        *,
        done: Callable[[Filed], None],
        publishers: Publishers = NOBODY,
        topology: Topology | None = None,
        pause: float = _PAUSE_SECONDS,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._done = done
        self._publishers = publishers
        self._topology = topology or Topology()
        self._pause = pause
        self._ready: deque[_Received] = deque()
        self._some = asyncio.Event()

    def receive(self, queue: str, settle: Callable[[Delivery], object]) -> Callable[..., None]:
        """Make the callback for the deliveries of one queue."""
        session: object = None

        def received(delivery: Delivery) -> None:
            nonlocal session
            if delivery.session is not session:
                # The earlier channel is lost: what came over it is delivered again over this one.
                session = delivery.session
                self._ready = deque(one for one in self._ready if one.queue != queue)
            self._ready.append(_Received(delivery, queue, settle))
            self._some.set()

        return received

    async def run(self, stop: asyncio.Event) -> None:
        """File until stopped; on failure pause and keep everything."""
        while not stop.is_set():
            await first_of(self._some, stop)
            try:
                await self.step()
            except DATABASE_ERRORS as away:
                log.warning("dead letters wait for the database", why=said(away))
                await wait(stop, self._pause)

    async def step(self) -> int:
        """File one batch; return how many deliveries that was."""
        batch = self._next_batch()
        if not batch:
            self._some.clear()
            return 0
        failpoints.passing("dead.received")
        try:
            await self._file(batch)
        except DATABASE_ERRORS as refused:
            if len(batch) == 1 or unreachable(refused):
                self._ready.extendleft(reversed(batch))
                raise
            await self._one_by_one(batch)
        return len(batch)

    async def _one_by_one(self, batch: Sequence[_Received]) -> None:
        """File the good ones beside a bad one; the bad one goes last and is tried again."""
        bad: Exception | None = None
        for place, one in enumerate(batch):
            try:
                await self._file([one])
            except DATABASE_ERRORS as refused:
                if unreachable(refused):
                    self._ready.extendleft(reversed(batch[place:]))
                    raise
                self._ready.append(one)
                bad = refused
        if bad is not None:
            raise bad

    async def _file(self, batch: Sequence[_Received]) -> None:
        arrivals = [read(one.delivery, one.queue, self._topology) for one in batch]
        filed = await transact(self._engine, lambda connection: self._write(connection, arrivals))
        failpoints.passing("dead.committed")
        self._done(filed)
        for one in batch:
            one.settle(one.delivery)

    async def _write(self, connection: AsyncConnection, arrivals: Sequence[Arrival]) -> Filed:
        readers = await job_rows.Readers.of(connection)
        known = Knowledge(self._registry.versions, self._flaws, readers.read, self._publishers)
        return await file(connection, arrivals, known)

    def _flaws(self, type_: str, version: int, value: Any) -> Sequence[Flaw]:
        registered = self._registry.find(type_, version)
        return () if registered is None else registered.validate(value)

    def _next_batch(self) -> list[_Received]:
        batch: list[_Received] = []
        size = 0
        while self._ready and len(batch) < _MOST:
            size += len(self._ready[0].delivery.body)
            if batch and size > _MOST_BYTES:
                break
            batch.append(self._ready.popleft())
        return batch
