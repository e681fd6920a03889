"""Complete: record results, with their effects, in one transaction per batch.

Before: handlers have returned; their jobs are `running` (or `cancel_requested`) under our fence.
After: state, result, attempt, event and effects of every job that was still ours are one commit.
May happen twice: yes; a job already final under our fence means the first commit had arrived.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import failpoints, lifecycle
from filaviva.database.fetch import fetch
from filaviva.database.lines import Connected, Line
from filaviva.outcome import Effect
from filaviva_worker.effects import apply

_COMPLETE = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS x(id, fence, result)),
locked AS MATERIALIZED (
    SELECT id, state, fence, attempt FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
mine AS MATERIALIZED (
    SELECT locked.id, locked.attempt, wanted.result FROM locked JOIN wanted USING (id)
    WHERE locked.fence = wanted.fence AND locked.state IN ('running', 'cancel_requested')),
done AS (
    UPDATE filaviva.jobs SET
        state = 'succeeded', result = mine.result::jsonb, error = NULL,
        lease_owner = NULL, lease_expires_at = NULL,
        finished_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM mine WHERE jobs.id = mine.id
    RETURNING jobs.id),
closed AS (
    UPDATE filaviva.attempts SET outcome = 'succeeded', finished_at = clock_timestamp()
    FROM mine WHERE attempts.job_id = mine.id AND attempts.number = mine.attempt),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'state', '{"status": "succeeded"}' FROM mine)
SELECT locked.id, done.id IS NOT NULL
FROM locked JOIN wanted USING (id) LEFT JOIN done USING (id)
WHERE done.id IS NOT NULL OR (locked.fence = wanted.fence AND locked.state = 'succeeded')
"""


@dataclass(slots=True)
class Completion:
    """One job's result (JSON text or None) and the statements that commit with it."""

    job_id: UUID
    fence: int
    result: str | None
    effects: Sequence[Effect] = ()
    lifecycle: bool = False  # to be told to other services


async def complete(connection: Connected, completions: Iterable[Completion]) -> set[UUID]:
    """Complete what is still ours; return the ids whose completion is (or already was) recorded.

    Effects of a job that is not ours any more are not applied.
    """
    ordered = sorted(completions, key=_by_job)
    arguments = (
        [each.job_id for each in ordered],
        [each.fence for each in ordered],
        [each.result for each in ordered],
    )
    rows = await fetch(connection, _COMPLETE, arguments)
    now = {row[0] for row in rows if row[1]}
    effects = [each.effects for each in ordered if each.job_id in now and each.effects]
    if effects:
        await apply(_sqlalchemy(connection), effects)
    told = [each.job_id for each in ordered if each.lifecycle and each.job_id in now]
    if told:
        await lifecycle.tell(connection, told)
    failpoints.passing("effect.before_commit")
    return {row[0] for row in rows}


def _sqlalchemy(connection: Connected) -> AsyncConnection:
    return connection.connection if isinstance(connection, Line) else connection


def _by_job(completion: Completion) -> UUID:
    return completion.job_id
