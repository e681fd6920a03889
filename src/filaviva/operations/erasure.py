"""Erase what a job knows of people: its data, its results, what was said; the facts stay.

Before: the job (and each of its items) is final, and nobody is about to send it back.
After: when, how often, how long and for how much is still there; what and for whom is not.
May happen twice: the second time there is nothing left to erase.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import canonical
from filaviva.database.fetch import fetch
from filaviva.errors import Rejected
from filaviva.operations import audit, jobs
from filaviva.operations.jobs import Reach

_FAMILY = """
SELECT id, state FROM filaviva.jobs WHERE id = $1 OR parent_id = $1
ORDER BY id FOR NO KEY UPDATE
"""
_REPLAYED = """
SELECT count(*) FROM filaviva.dead_letters
WHERE job_id = ANY($1::uuid[]) AND status = 'replaying'
"""
# A replay that goes on still needs the correction that it brings.
_CORRECTING = """
SELECT count(*) FROM filaviva.replays WHERE state = 'running' AND patch IS NOT NULL AND id IN (
    SELECT replay_letters.replay_id FROM filaviva.replay_letters
    JOIN filaviva.dead_letters ON dead_letters.id = dead_letter_id
    WHERE dead_letters.job_id = ANY($1::uuid[]))
"""
# Letters, then groups, each in key order, as everybody locks them.
_LOCKS: Final[Sequence[str]] = (
    """
SELECT 1 FROM filaviva.dead_letters WHERE job_id = ANY($1::uuid[])
ORDER BY id FOR NO KEY UPDATE
""",
    """
SELECT 1 FROM filaviva.failure_groups WHERE id IN (
    SELECT group_id FROM filaviva.dead_letters WHERE job_id = ANY($1::uuid[]))
ORDER BY id FOR NO KEY UPDATE
""",
)
_ERASE: Final[Sequence[str]] = (
    """
UPDATE filaviva.steps SET input = NULL, input_hash = NULL, output = NULL
WHERE job_id = ANY($1::uuid[])
""",
    "UPDATE filaviva.attempts SET error_message = NULL WHERE job_id = ANY($1::uuid[])",
    """
UPDATE filaviva.job_events SET data = (data - 'message') #- '{error,message}'
WHERE job_id = ANY($1::uuid[]) AND (data ? 'message' OR data->'error' ? 'message')
""",
    """
UPDATE filaviva.dead_letters SET error = error - 'message', headers = '{}', raw = NULL
WHERE job_id = ANY($1::uuid[])
""",
    """
UPDATE filaviva.failure_groups SET message = '(erased)' WHERE id IN (
    SELECT group_id FROM filaviva.dead_letters WHERE job_id = ANY($1::uuid[]))
AND NOT EXISTS (SELECT FROM filaviva.dead_letters
    WHERE group_id = failure_groups.id AND error ? 'message')
""",
    """
UPDATE filaviva.notifications SET text = NULL
WHERE state <> 'waiting' AND group_id IN (
    SELECT id FROM filaviva.failure_groups WHERE message = '(erased)' AND id IN (
        SELECT group_id FROM filaviva.dead_letters WHERE job_id = ANY($1::uuid[])))
""",
    """
UPDATE filaviva.replays SET patch = (
    SELECT jsonb_agg(step - 'value') FROM jsonb_array_elements(patch) AS step)
WHERE patch IS NOT NULL AND id IN (
    SELECT replay_letters.replay_id FROM filaviva.replay_letters
    JOIN filaviva.dead_letters ON dead_letters.id = dead_letter_id
    WHERE dead_letters.job_id = ANY($1::uuid[]))
""",
    """
UPDATE filaviva.jobs SET payload = 'null', result = NULL, progress = progress - 'message',
    error = error || '{"message": null}', labels = '{}', subject = NULL, tracestate = NULL,
    callback_url = NULL,
    erased_at = coalesce(erased_at, clock_timestamp()), updated_at = clock_timestamp()
WHERE id = ANY($1::uuid[])
""",
)
# What a batch that stays was told of this one item; a batch that goes has lost all of its messages.
_TOLD: Final = """
UPDATE filaviva.job_events AS told SET data = (data - 'message') #- '{error,message}'
FROM filaviva.jobs WHERE jobs.id = $1 AND told.job_id = jobs.parent_id
    AND told.data->>'jobId' = jobs.id::text
"""
# A handler's job type has its event before the colon.
_OF_EVENTS = """
SELECT tenant, payload::text FROM filaviva.jobs
WHERE id = ANY($1::uuid[]) AND type LIKE '%:%'
"""
_CONTENTS = """
DELETE FROM filaviva.contents AS contents USING (
    SELECT tenant, sha256 FROM filaviva.contents
    JOIN unnest($1::text[], $2::bytea[]) AS x(tenant, meaning) USING (tenant, meaning)
    ORDER BY tenant, sha256 FOR UPDATE OF contents) AS gone
WHERE contents.tenant = gone.tenant AND contents.sha256 = gone.sha256
"""
_WITHOUT_DATA = """
SELECT id, erased_at IS NOT NULL FROM filaviva.jobs
WHERE id = ANY($1::uuid[]) AND (erased_at IS NOT NULL OR 'payload' = ANY(removed))
"""


@dataclass(frozen=True, slots=True)
class Erased:
    """A job without its data, since when, and how many items with it."""

    job_id: UUID
    at: datetime
    items: int


async def erase(connection: AsyncConnection, job_id: UUID, reach: Reach, *, author: str) -> Erased:
    """Erase a final job's data, and its items'; Rejected (409) for any other. Audited."""
    await jobs.get(connection, job_id, reach)
    family = await fetch(connection, _FAMILY, (job_id,))
    ids = [one.id for one in family]
    _refuse_unended(family)
    for statement in _LOCKS:
        await connection.exec_driver_sql(statement, (ids,))
    await _refuse_replayed(connection, ids)
    await _forget_contents(connection, ids)
    for statement in _ERASE:
        await connection.exec_driver_sql(statement, (ids,))
    await connection.exec_driver_sql(_TOLD, (job_id,))
    await audit.record(
        connection,
        author=author,
        action="job.data_erased",
        tenant=reach.tenant,
        target=str(job_id),
        detail={"items": len(ids) - 1},
    )
    erased = await jobs.get(connection, job_id, reach)
    assert erased.erased_at is not None  # noqa: S101 - written above
    return Erased(job_id, erased.erased_at, len(ids) - 1)


async def _forget_contents(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """Remove what an event's data was kept as, if it was sent by reference."""
    data = await fetch(connection, _OF_EVENTS, (ids,))
    meant = sorted({(row[0], canonical.fingerprint(canonical.parse(row[1]))) for row in data})
    if meant:
        tenants, meanings = zip(*meant, strict=True)
        await connection.exec_driver_sql(_CONTENTS, (list(tenants), list(meanings)))


async def without_data(connection: AsyncConnection, ids: Collection[UUID]) -> dict[UUID, str]:
    """Tell which of these jobs cannot be done again, their data being gone, and why."""
    rows = await fetch(connection, _WITHOUT_DATA, (sorted(ids),))
    return {
        job_id: f"its data was {'erased' if erased else 'kept long enough and removed'}"
        for job_id, erased in rows
    }


def _refuse_unended(family: Sequence[tuple[UUID, str]]) -> None:
    states = {state for _, state in family} - {"succeeded", "failed", "canceled"}
    if states:
        found = ", ".join(sorted(states))
        detail = f"found {found}, expected a final state: cancel it first, or wait"
        raise Rejected("conflict", detail, status=409)


async def _refuse_replayed(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    for statement in (_REPLAYED, _CORRECTING):
        ((count,),) = await fetch(connection, statement, (ids,))
        if count:
            detail = "a replay of it is under way: stop the replay first, or wait"
            raise Rejected("conflict", detail, status=409)
