"""Close letters whose job has ended, and replays whose letters are all closed.

Before: a job that was sent back has succeeded, was canceled, or died again with a new letter.
After: its letter is resolved, the replay knows what it cost, an empty group is resolved.
May happen twice: the second finds the letter closed.
"""

import asyncio
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.operations import failure_groups
from filaviva.service import wait
from filaviva.telemetry.metrics import Metrics

log = structlog.get_logger("filaviva")

# A letter of a parked job closes too, once the job goes on without a replay. A job that failed
# again keeps the old letter until the new one is there: no moment without one.
_CLOSE = """
WITH ended AS MATERIALIZED (
    SELECT letter.id, letter.group_id, job.state, job.cost_usd
    FROM filaviva.dead_letters AS letter JOIN filaviva.jobs AS job ON job.id = letter.job_id
    WHERE (letter.status = 'replaying'
            OR (letter.status = 'open' AND letter.reason IN ('unsupported_version', 'unroutable')))
        AND (job.epoch > letter.epoch OR (job.state = 'canceled' AND letter.status = 'open'))
        AND (job.state IN ('succeeded', 'canceled') OR (job.state = 'failed' AND EXISTS (
            SELECT FROM filaviva.dead_letters AS next
            WHERE next.job_id = letter.job_id AND next.epoch > letter.epoch)))
    ORDER BY letter.id LIMIT 500 FOR NO KEY UPDATE OF letter SKIP LOCKED),
told AS (
    UPDATE filaviva.replay_letters AS sent SET outcome = ended.state,
        cost_usd = ended.cost_usd - sent.cost_before, closed_at = clock_timestamp()
    FROM ended WHERE sent.dead_letter_id = ended.id AND sent.state = 'sent'
        AND sent.outcome IS NULL
    RETURNING sent.outcome)
UPDATE filaviva.dead_letters AS letter SET status = 'resolved', closed_at = clock_timestamp()
FROM ended WHERE letter.id = ended.id
RETURNING letter.group_id, ended.state
"""

_FINISH = """
UPDATE filaviva.replays AS replay SET state = 'finished', finished_at = clock_timestamp()
WHERE replay.id IN (
    SELECT id FROM filaviva.replays WHERE state = 'running' ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED) AND NOT EXISTS (
    SELECT FROM filaviva.replay_letters AS letter WHERE letter.replay_id = replay.id
        AND (letter.state = 'waiting' OR (letter.state = 'sent' AND letter.outcome IS NULL)))
"""


class Closing:
    """Look after the letters that may close by themselves."""

    def __init__(self, engine: AsyncEngine, metrics: Metrics, *, pause: float = 0.5) -> None:
        self._engine = engine
        self._metrics = metrics
        self._pause = pause

    async def run(self, stop: asyncio.Event) -> None:
        """Close until stopped."""
        while not stop.is_set():
            try:
                closed = await self.step()
            except DATABASE_ERRORS as away:
                log.warning("letters wait for the database", why=said(away))
                closed = 0
            if closed == 0:
                await wait(stop, self._pause)

    async def step(self) -> int:
        """Close what can be closed; return how many letters that were."""
        closed = await transact(self._engine, _close)
        for state in closed:
            self._metrics.replays.labels(state).inc()
        return len(closed)


async def _close(connection: AsyncConnection) -> list[str]:
    rows = (await connection.exec_driver_sql(_CLOSE)).all()
    groups: set[UUID] = {row.group_id for row in rows}
    await failure_groups.settle(connection, groups)
    await connection.exec_driver_sql(_FINISH)
    return [row.state for row in rows]
