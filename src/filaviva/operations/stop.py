"""Stop jobs: the one statement that cancels, for what people ask and what the product decides.

Before: jobs are queued or at work, perhaps as the items of a batch.
After: what was queued is `canceled` and its wake-up stale; what ran is `cancel_requested` until its
worker has stopped it; workers and watchers hear of it with the caller's commit.
May happen twice: the second finds nothing to change.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import simplejson
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import lifecycle, notify
from filaviva.database.fetch import fetch
from filaviva.outbox import OutboxRow

# One statement, for items and their batch alike: between two, a retry could slip an item through.
# Locked by primary key and in key order, batches before their items; the rows as they are decide.
# A batch that has items is told here only that it was canceled: its state follows from theirs.
_CANCEL = """
WITH named AS MATERIALIZED (SELECT DISTINCT unnest($1::uuid[]) AS id),
batched AS MATERIALIZED (
    SELECT job_id AS id FROM filaviva.batches WHERE job_id = ANY($1::uuid[])),
wanted AS MATERIALIZED (
    SELECT id FROM named WHERE id NOT IN (SELECT id FROM batched)
    UNION SELECT id FROM filaviva.jobs WHERE parent_id = ANY($1::uuid[])),
parents AS MATERIALIZED (
    SELECT id, state FROM filaviva.jobs
    WHERE id = ANY(ARRAY(SELECT id FROM batched)) ORDER BY id FOR NO KEY UPDATE),
locked AS MATERIALIZED (
    SELECT id, state FROM filaviva.jobs
    WHERE id = ANY(ARRAY(SELECT id FROM wanted)) AND (SELECT count(*) FROM parents) >= 0
    ORDER BY id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT id, state, CASE state WHEN 'queued' THEN 'canceled' ELSE 'cancel_requested' END AS next
    FROM locked WHERE state IN ('queued', 'running')
    UNION ALL
    SELECT id, state, CASE state WHEN 'running' THEN 'cancel_requested' ELSE state END
    FROM parents WHERE state IN ('queued', 'running')),
done AS (
    UPDATE filaviva.jobs AS jobs SET
        state = mine.next,
        cancel_requested_at = coalesce(jobs.cancel_requested_at, clock_timestamp()),
        fence = jobs.fence + CASE mine.next WHEN 'canceled' THEN 1 ELSE 0 END,
        parked_reason = CASE mine.next WHEN 'canceled' THEN NULL ELSE jobs.parked_reason END,
        finished_at = CASE mine.next WHEN 'canceled' THEN clock_timestamp() END,
        updated_at = clock_timestamp()
    FROM mine WHERE jobs.id = mine.id
    RETURNING jobs.id, jobs.type, jobs.state, jobs.fence, jobs.parent_id,
        extract(epoch FROM clock_timestamp() - jobs.created_at)::float8 AS age),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT done.id, 'state', $2::text::jsonb || jsonb_build_object('status', done.state)
    FROM done JOIN mine USING (id) WHERE done.state <> mine.state ORDER BY done.id)
SELECT coalesce(locked.id, parents.id), coalesce(done.state, locked.state, parents.state),
    done.type, done.fence, done.parent_id, done.age
FROM locked FULL JOIN parents USING (id) LEFT JOIN done USING (id)
ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Reached:
    """One job that the cancel met, in the state that it has now; `changed`: by this cancel."""

    id: UUID
    state: str
    changed: bool
    type: str | None
    fence: int | None
    parent_id: UUID | None
    age: float | None  # seconds since its submission


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What became of the named jobs and their items; messages go to the relay after the commit."""

    jobs: Sequence[Reached]
    batches: Mapping[UUID, str] = field(default_factory=dict)  # in their states by now
    messages: Sequence[OutboxRow] = ()

    @property
    def canceled(self) -> list[Reached]:
        """Give what is final now: it had not begun."""
        return [job for job in self.jobs if job.changed and job.state == "canceled"]

    @property
    def requested(self) -> list[Reached]:
        """Give what its worker was asked to stop."""
        return [job for job in self.jobs if job.changed and job.state == "cancel_requested"]

    @property
    def parents(self) -> set[UUID]:
        """Give the batches whose items changed: their states are to be read again."""
        return {job.parent_id for job in self.jobs if job.changed and job.parent_id is not None}

    def state(self, job_id: UUID) -> str | None:
        """Give the state of one job; None if there is no such job."""
        if job_id in self.batches:
            return self.batches[job_id]
        return next((job.state for job in self.jobs if job.id == job_id), None)


async def stop(
    connection: AsyncConnection,
    job_ids: Collection[UUID],
    *,
    author: str,
    reason: str | None = None,
) -> Cancellation:
    """Cancel these jobs and the items of batches among them; final ones stay as they are."""
    why = {"cause": "cancel", "author": author, "reason": reason}
    rows = await fetch(connection, _CANCEL, (sorted(set(job_ids)), simplejson.dumps(why)))
    done = Cancellation([Reached(r[0], r[1], r[2] is not None, *r[2:]) for r in rows])
    await lifecycle.tell(connection, [job.id for job in done.canceled])
    await _tell(connection, done)
    return done


async def _tell(connection: AsyncConnection, done: Cancellation) -> None:
    """Let workers and watchers hear of it at once; the heartbeat and polling are the safety net."""
    running = [f"{job.id}:{job.fence}" for job in done.requested]
    await notify.send(connection, notify.CANCELS, running)
    changed = {job.id for job in done.jobs if job.changed} | done.parents
    await notify.send(connection, notify.CHANNEL, map(str, sorted(changed)))
