"""Submit the drill's jobs over HTTP, each twice at once under one Idempotency-Key."""

import asyncio
from collections.abc import Sequence
from itertools import count
from uuid import UUID

from filaviva.client.asynchronous import Client, Job
from filaviva.drill.contract import DrillCall
from filaviva.drilling.evidence import Submitted
from filaviva.drilling.plan import Kind, attempts


class Submitting:
    """Number the jobs of one drill."""

    def __init__(self, client: Client, drill_id: UUID, *, seconds: float) -> None:
        self._client = client
        self._drill_id = drill_id
        self._seconds = seconds
        self._numbers = count(1)

    async def submit(self, kind: Kind, many: int) -> Sequence[Submitted]:
        """Submit so many jobs of a kind."""
        wanted = [self._twice(kind, next(self._numbers)) for _ in range(many)]
        return await asyncio.gather(*wanted)

    async def _twice(self, kind: Kind, number: int) -> Submitted:
        both = await asyncio.gather(self._once(kind, number), self._once(kind, number))
        ids = frozenset(UUID(job.id) for job in both)
        return Submitted(kind, number, ids, sum(job.duplicate for job in both))

    async def _once(self, kind: Kind, number: int) -> "Job[object]":
        return await self._client.submit(
            DrillCall(drill_id=self._drill_id, number=number),
            idempotency_key=f"{self._drill_id}-{number}",
            max_attempts=attempts(kind, self._seconds),
            labels={"drill": str(self._drill_id), "kind": kind},
        )
