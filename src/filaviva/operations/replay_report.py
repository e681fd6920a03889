"""What a replay came to so far: progress, each letter's result, cost before and after."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import as_dict
from filaviva.database.tables import replay_letters, replays
from filaviva.errors import NotFound
from filaviva.operations.figures import moment, money
from filaviva.operations.reach import EVERYTHING, Reach

_PROGRESS = """
SELECT count(*) AS total,
    count(*) FILTER (WHERE state = 'waiting') AS waiting,
    count(*) FILTER (WHERE state = 'sent' AND outcome IS NULL) AS running,
    count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE outcome = 'failed') AS failed,
    count(*) FILTER (WHERE outcome = 'canceled') AS canceled,
    count(*) FILTER (WHERE state = 'refused') AS refused,
    count(*) FILTER (WHERE state = 'stopped') AS stopped,
    coalesce(sum(estimated_usd), 0) AS estimated,
    coalesce(sum(cost_usd), 0) AS spent
FROM filaviva.replay_letters WHERE replay_id = $1
"""


async def report(
    connection: AsyncConnection,
    replay_id: UUID,
    *,
    reach: Reach = EVERYTHING,
    after: UUID | None = None,
    limit: int = 100,
) -> dict[str, Any]:
    """Show a replay with its first letters (after the one with the id `after`)."""
    row = (await connection.execute(_replays(reach).where(replays.c.id == replay_id))).first()
    if row is None:
        raise NotFound(f"found no replay {replay_id}")
    counted = (await connection.exec_driver_sql(_PROGRESS, (replay_id,))).one()
    progress = as_dict(counted)
    estimated, spent = progress.pop("estimated"), progress.pop("spent")
    return {
        **_public(as_dict(row)),
        "progress": progress,
        "estimatedCostUsd": money(estimated),
        "costUsd": money(spent),
        "letters": await _letters(connection, replay_id, after, limit),
    }


async def page(
    connection: AsyncConnection,
    *,
    reach: Reach = EVERYTHING,
    after: UUID | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """List replays, newest first, without their letters."""
    query = _replays(reach).order_by(replays.c.id.desc()).limit(limit)
    if after is not None:
        query = query.where(replays.c.id < after)
    return [_public(as_dict(row)) for row in await connection.execute(query)]


def _replays(reach: Reach) -> Any:
    query = select(replays)
    return query if reach.tenant is None else query.where(replays.c.tenant == reach.tenant)


async def _letters(
    connection: AsyncConnection, replay_id: UUID, after: UUID | None, limit: int
) -> list[dict[str, Any]]:
    letter = replay_letters.c
    query = select(replay_letters).where(letter.replay_id == replay_id)
    if after is not None:
        query = query.where(letter.dead_letter_id > after)
    rows = await connection.execute(query.order_by(letter.dead_letter_id).limit(limit))
    return [_letter(as_dict(row)) for row in rows]


def _letter(row: Mapping[str, Any]) -> dict[str, Any]:
    running = row["state"] == "sent" and row["outcome"] is None
    return {
        "deadLetterId": str(row["dead_letter_id"]),
        "jobId": None if row["job_id"] is None else str(row["job_id"]),
        "status": "running" if running else row["outcome"] or row["state"],
        "error": row["error"],
        "costUsd": money(row["cost_usd"]),
        "sentAt": moment(row["sent_at"]),
        "finishedAt": moment(row["closed_at"]),
    }


def _public(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "tenant": row["tenant"],
        "status": row["state"],
        "author": row["author"],
        "reason": row["reason"],
        "scope": row["scope"],
        "patched": row["patch"] is not None,
        "ratePerSecond": row["rate_per_second"],
        "canary": row["canary"],
        "error": row["error"],
        "createdAt": moment(row["created_at"]),
        "finishedAt": moment(row["finished_at"]),
    }
