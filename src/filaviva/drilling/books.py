"""What the database knows of a drill."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.drill.contract import QUEUE, DrillCall
from filaviva.drilling.evidence import Attempt, Group, Notice
from filaviva.drilling.plan import TENANT
from filaviva.operations.doctor.production.sight import processes

# One at a time on a database; the session ends with whoever holds it.
_ALONE: Final = "SELECT pg_try_advisory_lock(x'66696c64'::int)"
_RUNNING: Final = """
SELECT author, began_at FROM filaviva.drills WHERE ended_at IS NULL
ORDER BY began_at DESC LIMIT 1
"""
_SERVED: Final = """
SELECT count(*) FROM filaviva.workers
WHERE $1 = ANY (queues) AND stopped_at IS NULL AND last_seen_at > now() - interval '1 minute'
"""
_PUBLISHED: Final = "SELECT count(*) FROM filaviva.contracts WHERE type = $1"
_STATES: Final = "SELECT id, state FROM filaviva.jobs WHERE id = ANY($1::uuid[])"
_ATTEMPTS: Final = """
SELECT job_id, number, started_at, finished_at, outcome, error_class, pause_seconds
FROM filaviva.attempts WHERE job_id = ANY($1::uuid[]) ORDER BY job_id, number
"""
_GROUPS: Final = """
SELECT g.id, mine.letters, g.state, g.reason, g.error_code
FROM (SELECT group_id, count(*) AS letters FROM filaviva.dead_letters
      WHERE job_id = ANY($1::uuid[]) GROUP BY group_id) AS mine
JOIN filaviva.failure_groups AS g ON g.id = mine.group_id ORDER BY g.id
"""
_NOTICES: Final = """
SELECT told.state, told.tries, told.error FROM filaviva.notifications AS told
JOIN filaviva.failure_groups AS g ON g.id = told.group_id AND g.episode = told.episode
WHERE g.id = ANY($1::uuid[]) ORDER BY told.id
"""
_LEFT: Final = """
SELECT (SELECT count(*) FROM filaviva.jobs
        WHERE tenant = $1 AND state IN ('queued', 'running', 'cancel_requested'))
    + (SELECT count(*) FROM filaviva.dead_letters
       WHERE tenant = $1 AND status IN ('open', 'replaying'))
"""


async def alone(connection: AsyncConnection) -> bool:
    """Take the lock of drills for this session; False if another one runs."""
    return bool((await connection.exec_driver_sql(_ALONE)).scalar())


class Books:
    """Questions, each on a connection of its own."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def now(self) -> datetime:
        """Give the database's time."""
        async with self._engine.connect() as connection:
            at: datetime = (await fetch(connection, "SELECT clock_timestamp()"))[0][0]
            return at

    async def running(self) -> tuple[str, datetime] | None:
        """Tell who drills, since when."""
        async with self._engine.connect() as connection:
            found = await fetch(connection, _RUNNING)
        return (found[0][0], found[0][1]) if found else None

    async def published(self) -> bool:
        """Tell whether setup has published the drill's contract."""
        async with self._engine.connect() as connection:
            return bool((await fetch(connection, _PUBLISHED, (DrillCall.contract_type,)))[0][0])

    async def workers(self) -> int:
        """Count the workers that serve the drill."""
        async with self._engine.connect() as connection:
            return int((await fetch(connection, _SERVED, (QUEUE,)))[0][0])

    async def tells_slack(self) -> bool:
        """Tell whether a dlq-handler that runs has somebody in Slack to tell."""
        async with self._engine.connect() as connection:
            seen = await processes(connection)
        handlers = [each for each in seen if each.live and each.service == "dlq-handler"]
        return any(each.settings.get("slack") for each in handlers)

    async def states(self, jobs: Collection[UUID]) -> Mapping[UUID, str]:
        """Give the states of jobs."""
        async with self._engine.connect() as connection:
            rows = await fetch(connection, _STATES, (sorted(jobs),))
        return {UUID(str(row[0])): row[1] for row in rows}

    async def attempts(self, jobs: Collection[UUID]) -> Sequence[Attempt]:
        """Give the attempts of jobs."""
        async with self._engine.connect() as connection:
            rows = await fetch(connection, _ATTEMPTS, (sorted(jobs),))
        return [Attempt(UUID(str(row[0])), *row[1:]) for row in rows]

    async def groups(self, jobs: Collection[UUID]) -> Sequence[Group]:
        """Give the failure groups that hold dead letters of jobs."""
        async with self._engine.connect() as connection:
            rows = await fetch(connection, _GROUPS, (sorted(jobs),))
        return [Group(UUID(str(row[0])), *row[1:]) for row in rows]

    async def notices(self, groups: Sequence[Group]) -> Sequence[Notice]:
        """Give the messages about groups, of their present episode."""
        async with self._engine.connect() as connection:
            rows = await fetch(connection, _NOTICES, ([group.id for group in groups],))
        return [Notice(*row) for row in rows]

    async def left(self) -> int:
        """Count what of any drill has not ended."""
        async with self._engine.connect() as connection:
            return int((await fetch(connection, _LEFT, (TENANT,)))[0][0])
