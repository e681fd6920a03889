"""Leave nothing of a drill behind: neither its own rests, nor those of one that was killed.

Before: jobs of drills wait or run, dead letters of theirs are open.
After: the jobs have ended, the letters are closed, their group is resolved.
May happen twice: the second finds nothing.
"""

import asyncio
import time
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.database.transaction import transact
from filaviva.drilling.plan import TENANT
from filaviva.errors import Rejected
from filaviva.operations import keys, replay
from filaviva.operations.cancel import cancel
from filaviva.operations.discard import discard

_PATIENCE: Final = 15.0
_GLANCE: Final = 0.2
_OPEN: Final = """
SELECT id FROM filaviva.jobs
WHERE tenant = $1 AND state IN ('queued', 'running', 'cancel_requested') ORDER BY id
"""
# A job that has failed gets its letter a moment later.
_UNFILED: Final = """
SELECT count(*) FROM filaviva.jobs AS job WHERE job.tenant = $1 AND job.state = 'failed'
    AND NOT EXISTS (SELECT FROM filaviva.dead_letters AS letter WHERE letter.job_id = job.id)
    AND job.finished_at > now() - interval '1 minute'
"""
_LETTERS: Final = """
SELECT id FROM filaviva.dead_letters WHERE tenant = $1 AND status = $2 ORDER BY id
"""
_REPLAYS: Final = """
SELECT DISTINCT replay.id FROM filaviva.replays AS replay
JOIN filaviva.dead_letters AS letter ON letter.replay_id = replay.id
WHERE replay.state = 'running' AND letter.tenant = $1 AND letter.status = 'replaying'
"""
_KEYS: Final = "SELECT id FROM filaviva.api_keys WHERE tenant = $1 AND revoked_at IS NULL"


async def clear(engine: AsyncEngine, *, author: str, reason: str) -> int:
    """End everything; return how many jobs and letters there were to end."""
    for (running,) in await _rows(engine, _REPLAYS, TENANT):
        await _stop(engine, UUID(str(running)), author)
    ended = await _cancel(engine, author=author, reason=reason)
    await _until_quiet(engine)
    letters = [UUID(str(row[0])) for row in await _rows(engine, _LETTERS, TENANT, "open")]
    for letter in letters:
        await _discard(engine, letter, author=author, reason=reason)
    # Last: what still runs under a key that is revoked would die of that.
    for (key,) in await _rows(engine, _KEYS, TENANT):
        await keys.revoke(engine, str(key), author=author)
    return ended + len(letters)


async def _cancel(engine: AsyncEngine, *, author: str, reason: str) -> int:
    ids = [UUID(str(row[0])) for row in await _rows(engine, _OPEN, TENANT)]
    if ids:
        await transact(
            engine, lambda on: cancel(on, ids, author=author, reason=reason, tenant=TENANT)
        )
    return len(ids)


async def _until_quiet(engine: AsyncEngine) -> None:
    """Wait until what ran has stopped and what failed is filed; workers may be away."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        unfiled = (await _rows(engine, _UNFILED, TENANT))[0][0]
        moving = await _rows(engine, _LETTERS, TENANT, "replaying")
        if not unfiled and not moving and not await _rows(engine, _OPEN, TENANT):
            return
        await asyncio.sleep(_GLANCE)


async def _stop(engine: AsyncEngine, replay_id: UUID, author: str) -> None:
    try:
        await transact(engine, lambda on: replay.stop(on, replay_id, author=author))
    except Rejected:
        return  # it has ended by itself


async def _discard(engine: AsyncEngine, letter: UUID, *, author: str, reason: str) -> None:
    async def work(connection: AsyncConnection) -> None:
        await discard(connection, letter, author=author, reason=reason)

    try:
        await transact(engine, work)
    except Rejected:
        return  # somebody else has closed it


async def _rows(
    engine: AsyncEngine, statement: str, *arguments: object
) -> list[tuple[object, ...]]:
    async with engine.connect() as connection:
        return [tuple(row) for row in await fetch(connection, statement, arguments)]
