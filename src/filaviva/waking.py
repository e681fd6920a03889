"""Wake queued jobs: those that their queue can do with at once, the others when it is their turn.

Before: jobs are queued in the caller's transaction and have no wake-up.
After: an outbox row leaves with the commit, or the job is in line: in `turns`, or in `upcoming`
until its time has come.
May happen twice: a job is in line once, under its newest epoch; a second wake-up finds it claimed.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import outbox, turns
from filaviva.database.fetch import fetch
from filaviva.outbox import OutboxRow
from filaviva.turns import Gate
from filaviva.wakeups import wake_up

# A job that was canceled in line, and is wanted again, is there already under an older epoch.
# now() and not clock_timestamp(): in both parts it has to be the same moment.
_LINE_UP: Final = """
WITH these AS MATERIALIZED (
    SELECT id, epoch, queue, tenant, priority, not_before FROM filaviva.jobs
    WHERE id = ANY($1::uuid[])),
later AS (
    INSERT INTO filaviva.upcoming (job_id, epoch, due_at)
    SELECT id, epoch, not_before FROM these WHERE not_before > now() ORDER BY id
    ON CONFLICT (job_id) DO UPDATE SET epoch = excluded.epoch, due_at = excluded.due_at)
INSERT INTO filaviva.turns (queue, tenant, priority, job_id, epoch)
SELECT queue, tenant, priority, id, epoch FROM these
WHERE coalesce(not_before <= now(), true) ORDER BY id
ON CONFLICT (queue, tenant, priority, job_id) DO UPDATE SET epoch = excluded.epoch
"""


async def wake(
    connection: AsyncConnection, jobs: Sequence[Mapping[str, Any]], gate: Gate | None = None
) -> list[OutboxRow]:
    """Wake these jobs (what a wake-up says of each); without a gate, by a look at the database."""
    if not jobs:
        return []
    deciding = gate or await turns.moment(connection)
    chosen = [job for job in jobs if deciding.at_once(job["queue"], pause=pause_until(_time(job)))]
    now = {job["job_id"] for job in chosen}
    await line_up(connection, [job["job_id"] for job in jobs if job["job_id"] not in now])
    return await outbox.add(connection, [wake_up(**job) for job in chosen])


async def line_up(connection: AsyncConnection, job_ids: Sequence[UUID]) -> None:
    """Have these queued jobs wait for their turn, in the transaction that queued them."""
    if job_ids:
        await fetch(connection, _LINE_UP, (list(job_ids),))


def pause_until(moment: datetime | None) -> float:
    """Tell about how long it is until then: enough for a choice, so our own clock will do."""
    return 0.0 if moment is None else max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _time(job: Mapping[str, Any]) -> datetime | None:
    found: datetime | None = job.get("not_before")
    return found
