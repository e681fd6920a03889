"""The jobs of firings: one each, or a batch with its items, as the schedule's row says.

Before: the schedules are locked. After, with the caller's commit: the jobs are queued.
May happen twice: a job's key is the schedule and the time it was fired for.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection
from uuid_utils.compat import uuid7

from filaviva.database import as_dict
from filaviva.operations import batch_birth
from filaviva.operations.batch_request import Batch
from filaviva.operations.figures import moment
from filaviva.operations.submission import Submission
from filaviva.outbox import OutboxRow
from filaviva.turns import Gate
from filaviva.waking import wake

_FIRE = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[])
    AS x(id, schedule_id, key, fingerprint)),
created AS (
    INSERT INTO filaviva.jobs (id, tenant, idempotency_key, fingerprint, type, version, queue,
        payload, max_attempts, priority, labels, subject, submitted_by, correlation_id,
        callback_url)
    SELECT wanted.id, tenant, key, wanted.fingerprint, type, version, contracts.queue, data,
        coalesce(max_attempts, (contracts.policy->>'maxAttempts')::integer, 5), priority, labels,
        subject, submitted_by, key, callback_url
    FROM wanted JOIN filaviva.schedules ON schedules.id = wanted.schedule_id
    JOIN filaviva.contracts USING (type, version)
    ORDER BY tenant, key
    ON CONFLICT DO NOTHING
    RETURNING id, type, version, queue, priority, correlation_id),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT created.id, 'state', jsonb_build_object('status', 'queued', 'reason', 'scheduled',
        'schedule', wanted.schedule_id)
    FROM created JOIN wanted USING (id))
SELECT id AS job_id, 1 AS epoch, 1 AS issue, type, version, queue, priority, correlation_id
FROM created ORDER BY id
"""

# As text: the driver's own parsing would make floats of exact numbers.
_TEMPLATE = """
SELECT tenant, type, version, contracts.queue,
    coalesce(max_attempts, (contracts.policy->>'maxAttempts')::integer, 5) AS max_attempts,
    priority, labels::text AS labels, subject, submitted_by, callback_url,
    ARRAY(SELECT item::text FROM jsonb_array_elements(items) WITH ORDINALITY AS x(item, place)
        ORDER BY place) AS items,
    (batch->>'acceptPartial')::boolean AS accept_partial,
    coalesce((batch->>'failFast')::boolean, false) AS fail_fast,
    (batch->>'maxFailures')::integer AS max_failures,
    (batch->>'concurrency')::integer AS concurrency
FROM filaviva.schedules JOIN filaviva.contracts USING (type, version) WHERE schedules.id = $1
"""
_OF_BATCH = ("items", "accept_partial", "fail_fast", "max_failures", "concurrency")


@dataclass(frozen=True, slots=True)
class Firing:
    """A time of a schedule, and the job that it becomes; limits count it as a submission."""

    schedule_id: UUID
    at: datetime
    tenant: str
    subject: str | None
    jobs: int
    batch: bool
    job_id: UUID = field(default_factory=uuid7)

    @classmethod
    def of(cls, row: Any, at: datetime) -> "Firing":
        """Make the firing of a schedule's row for this time."""
        return cls(row.id, at, row.tenant, row.subject, row.jobs, row.batch)

    @property
    def idempotency_key(self) -> str:
        return f"schedule:{self.schedule_id}:{moment(self.at)}"

    @property
    def name(self) -> tuple[str, str]:
        """What tells it from other submissions."""
        return self.tenant, self.idempotency_key

    @property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(self.idempotency_key.encode()).digest()


@dataclass(frozen=True, slots=True)
class Stored:
    """The jobs that are new, and what goes to the relay once they are committed."""

    rows: Sequence[OutboxRow] = ()
    jobs: frozenset[UUID] = field(default_factory=frozenset)


async def store(connection: AsyncConnection, firings: Sequence[Firing], gate: Gate) -> Stored:
    """Store the jobs of these firings."""
    rows: list[OutboxRow] = []
    jobs: set[UUID] = set()
    singles = [one for one in firings if not one.batch]
    if singles:
        columns = (
            [one.job_id for one in singles],
            [one.schedule_id for one in singles],
            [one.idempotency_key for one in singles],
            [one.fingerprint for one in singles],
        )
        made = [as_dict(row) for row in await connection.exec_driver_sql(_FIRE, columns)]
        rows += await wake(connection, made, gate)
        jobs.update(job["job_id"] for job in made)
    for one in firings:
        if one.batch:
            stored = await _store_batch(connection, one, gate)
            rows += stored.rows
            jobs |= stored.jobs
    return Stored(rows, frozenset(jobs))


async def _store_batch(connection: AsyncConnection, firing: Firing, gate: Gate) -> Stored:
    found = await connection.exec_driver_sql(_TEMPLATE, (firing.schedule_id,))
    columns = as_dict(found.one())
    items, *policy = (columns.pop(name) for name in _OF_BATCH)
    batch = Batch(tuple(items), *policy)
    submission = Submission(
        **columns,
        idempotency_key=firing.idempotency_key,
        fingerprint=firing.fingerprint,
        payload="{}",
        not_before=None,
        deadline=None,
        correlation_id=firing.idempotency_key,
        traceparent=None,
        batch=batch,
    )
    at_once = partial(gate.at_once, submission.queue)
    stored = await batch_birth.store(connection, firing.job_id, submission, batch, at_once=at_once)
    return Stored() if stored is None else Stored(stored, frozenset((firing.job_id,)))
