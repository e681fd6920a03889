"""Steps: checkpoints of a job, keyed by (job, revision of its inputs, name).

Before: the attempt holds the lease.
After `begin`: the step is known as running, or its stored output is returned and it is not run.
After `finish`: its output is stored; no later attempt runs it again.
May happen twice: a step whose process died before `finish` runs again.
"""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.errors import CancelRequested, LeaseLost

_FENCED = """
WITH mine AS MATERIALIZED (
    SELECT id, revision, attempt, cancel_requested_at FROM filaviva.jobs
    WHERE id = $1 AND fence = $2 AND state {state} FOR NO KEY UPDATE)
"""

_CANCELED = """
SELECT 1 FROM filaviva.jobs WHERE id = $1 AND fence = $2 AND state = 'cancel_requested'
"""

_SAVED = """
SELECT output::text FROM filaviva.steps
WHERE job_id = $1 AND revision = $2 AND name = $3 AND state = 'succeeded'
"""

# Not even one whose worker has not heard of the cancel yet: the row is asked, under its lock.
_BEGIN = (
    _FENCED.format(state="= 'running'")
    + """
INSERT INTO filaviva.steps AS s (job_id, revision, name, attempt, state, tool, input_hash)
SELECT id, revision, $3, attempt, 'running', $4, $5 FROM mine
ON CONFLICT (job_id, revision, name) DO UPDATE SET
    attempt = excluded.attempt, state = 'running', started_at = clock_timestamp(),
    finished_at = NULL, input_hash = excluded.input_hash
WHERE s.state <> 'succeeded'
RETURNING s.state
"""
)

_FINISH = (
    _FENCED.format(state="IN ('running', 'cancel_requested')")
    + """,
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'step', jsonb_build_object('name', $3::text, 'state', $4::text) FROM mine),
spent AS (
    SELECT coalesce(sum(cost_usd), 0) AS usd FROM filaviva.llm_calls
    WHERE job_id = $1 AND step = $3)
UPDATE filaviva.steps SET
    state = $4, output = $5::text::jsonb, finished_at = clock_timestamp(), cost_usd = spent.usd
FROM mine, spent
WHERE steps.job_id = mine.id AND steps.revision = mine.revision AND steps.name = $3
RETURNING coalesce(steps.started_at > mine.cancel_requested_at, false)
"""
)


@dataclass(frozen=True, slots=True)
class Saved:
    """The stored output of a finished step, as JSON text (None: it had none)."""

    output: str | None


class Steps:
    """The checkpoints of one attempt."""

    def __init__(self, job_id: UUID, fence: int, revision: int, *, fresh: bool) -> None:
        self._job_id = job_id
        self._fence = fence
        self._revision = revision
        # The first attempt of a job has nothing to find.
        self.fresh = fresh

    async def saved(self, connection: AsyncConnection, name: str) -> Saved | None:
        """Find the output of a step that an earlier attempt finished."""
        return await self._find(connection, name)

    async def begin(
        self, connection: AsyncConnection, name: str, *, tool: str | None, input_hash: bytes | None
    ) -> Saved | None:
        """Record that the step runs now, or give what this very attempt has finished before.

        LeaseLost if the job is not ours any more, CancelRequested if it is to stop.
        """
        arguments = (self._job_id, self._fence, name, tool, input_hash)
        if (await connection.exec_driver_sql(_BEGIN, arguments)).first() is not None:
            return None
        finished = await self._find(connection, name)
        if finished is None:
            raise await self._refusal(connection, name)
        return finished

    async def finish(
        self,
        connection: AsyncConnection,
        name: str,
        state: Literal["succeeded", "failed"],
        output: str | None = None,
    ) -> bool:
        """Store what the step came to; LeaseLost if the job is not ours any more.

        Whether it had started after a cancel is told, so that it can be seen that none does.
        """
        arguments = (self._job_id, self._fence, name, state, output)
        stored = (await connection.exec_driver_sql(_FINISH, arguments)).first()
        if stored is None:
            raise LeaseLost(f"step {name!r} was not stored: job {self._job_id} is not ours")
        return bool(stored[0])

    async def _refusal(self, connection: AsyncConnection, name: str) -> LeaseLost:
        asked = await connection.exec_driver_sql(_CANCELED, (self._job_id, self._fence))
        if asked.first() is not None:
            return CancelRequested(f"step {name!r} was not started: job {self._job_id} is canceled")
        return LeaseLost(f"step {name!r} was not started: job {self._job_id} is not ours")

    async def _find(self, connection: AsyncConnection, name: str) -> Saved | None:
        arguments = (self._job_id, self._revision, name)
        row = (await connection.exec_driver_sql(_SAVED, arguments)).first()
        return None if row is None else Saved(row[0])
