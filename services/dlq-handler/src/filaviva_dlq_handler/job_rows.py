"""The rows of the jobs that arrivals name: locked, read, changed."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import lifecycle
from filaviva.canonical import storable
from filaviva.operations.readers import READERS
from filaviva_dlq_handler.judge import Job

# By primary key and in key order, as everybody who locks several jobs.
_LOCK = "SELECT id FROM filaviva.jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE"

# A statement of its own: it sees what was committed while we waited for the locks.
_READ = """
SELECT job.id, job.tenant, job.type, job.version, job.queue, job.state, job.epoch, job.attempt,
    job.delivery_limits, job.parked_reason, job.cost_usd, job.error::text AS error,
    last.error_class, last.error_code, last.error_message, last.error_frames, last.step
FROM filaviva.jobs AS job
LEFT JOIN filaviva.attempts AS last ON last.job_id = job.id AND last.number = job.attempt
WHERE job.id = ANY($1::uuid[]) ORDER BY job.id
"""

_FAIL = """
WITH failed AS (
    UPDATE filaviva.jobs AS jobs SET state = 'failed', error = x.error::jsonb,
        delivery_limits = jobs.delivery_limits + 1, finished_at = clock_timestamp(),
        updated_at = clock_timestamp()
    FROM unnest($1::uuid[], $2::text[]) AS x(id, error)
    WHERE jobs.id = x.id AND jobs.state = 'queued' RETURNING jobs.id, x.error)
INSERT INTO filaviva.job_events (job_id, kind, data)
SELECT id, 'state', jsonb_build_object('status', 'failed', 'error', error::jsonb)
FROM failed ORDER BY id
RETURNING job_id
"""

_PARK = """
WITH parked AS (
    UPDATE filaviva.jobs AS jobs SET parked_reason = x.reason, updated_at = clock_timestamp()
    FROM unnest($1::uuid[], $2::text[]) AS x(id, reason)
    WHERE jobs.id = x.id AND jobs.state = 'queued' RETURNING jobs.id, x.reason)
INSERT INTO filaviva.job_events (job_id, kind, data)
SELECT id, 'state', jsonb_build_object('status', 'queued', 'parked', reason)
FROM parked ORDER BY id
"""

_COUNT = """
UPDATE filaviva.jobs SET delivery_limits = delivery_limits + 1, updated_at = clock_timestamp()
WHERE id = ANY($1::uuid[])
"""


async def locked(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, Job]:
    """Lock these jobs and give those that exist."""
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    await connection.exec_driver_sql(_LOCK, (wanted,))
    found = await connection.exec_driver_sql(_READ, (wanted,))
    return {row["id"]: _job(row) for row in found.mappings()}


def _job(row: RowMapping) -> Job:
    kept = {name: row[name] for name in Job.__dataclass_fields__ if name != "error"}
    return Job(**kept, error=_error(row))


def _error(row: RowMapping) -> dict[str, Any]:
    """Give the job's error, with what only the attempt knows where it speaks of the same one."""
    told = json.loads(row["error"]) if row["error"] else {}
    code = told.get("code") or row["error_code"]
    error = {
        "class": told.get("class") or row["error_class"],
        "code": code,
        "message": storable(told.get("message") or row["error_message"] or "", 4000),
    }
    if code == row["error_code"]:
        error["frames"] = list(row["error_frames"] or ())
        error["step"] = row["step"]
    return error


async def fail(connection: AsyncConnection, errors: Mapping[UUID, dict[str, Any]]) -> None:
    """End these locked, queued jobs as failed."""
    if errors:
        ids = sorted(errors)
        told = [json.dumps({**errors[id_], "retryable": False}) for id_ in ids]
        failed = await connection.exec_driver_sql(_FAIL, (ids, told))
        await lifecycle.tell(connection, failed.scalars())


async def park(connection: AsyncConnection, reasons: Mapping[UUID, str]) -> None:
    """Take these locked, queued jobs out of everybody's way until the reason is gone."""
    if reasons:
        ids = sorted(reasons)
        await connection.exec_driver_sql(_PARK, (ids, [reasons[id_] for id_ in ids]))


async def count_limit(connection: AsyncConnection, ids: Collection[UUID]) -> None:
    """Remember that the broker gave these jobs' wake-ups up once more."""
    if ids:
        await connection.exec_driver_sql(_COUNT, (sorted(ids),))


class Readers:
    """Which types and versions the running workers read, queue by queue."""

    def __init__(self, rows: Sequence[tuple[str, str, int, int]]) -> None:
        self._rows = rows

    @classmethod
    async def of(cls, connection: AsyncConnection) -> "Readers":
        """Ask the workers' heartbeat rows."""
        found = await connection.exec_driver_sql(READERS)
        return cls([(row.queue, row.type, row.min, row.max) for row in found])

    def read(self, queue: str, type: str, version: int) -> bool:  # noqa: A002 - our word
        """Tell whether somebody on this queue reads this version now."""
        return any(
            (queue, type) == (served, known) and low <= version <= high
            for served, known, low, high in self._rows
        )
