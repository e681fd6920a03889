"""Schedules: kept, looked at, changed, paused and removed; one tenant's.

Before: a checked definition, or somebody asks. After: the row says when it fires next, and the
audit log who said so.
May happen twice: the same request under the same name is the same schedule.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Text, cast, func, null, select, true
from sqlalchemy.ext.asyncio import AsyncConnection
from uuid_utils.compat import uuid7

from filaviva import canonical
from filaviva.cron import Cron
from filaviva.database.tables import schedules
from filaviva.errors import NotFound, Rejected
from filaviva.operations import audit
from filaviva.operations.jobs import Reach
from filaviva.operations.reach import of_types
from filaviva.operations.scheduling import LABEL, Definition, labels
from filaviva.operations.submission import PRIORITIES

PRIORITY_WORDS = {number: word for word, number in PRIORITIES.items()}


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is now; data, items, batch and labels are JSON text."""

    id: UUID
    tenant: str
    name: str
    cron: str
    time_zone: str
    missed: str
    overlap: str
    enabled: bool
    type: str
    version: int
    data: str | None
    items: str | None
    batch: str | None
    priority: int
    max_attempts: int | None
    labels: str
    subject: str | None
    callback_url: str | None
    next_fire_at: datetime | None
    last_fired_at: datetime | None
    last_job_id: UUID | None
    fired: int
    skipped: int
    last_skipped_at: datetime | None
    waiting: Sequence[datetime]
    error: str | None
    submitted_by: str
    created_at: datetime
    updated_at: datetime

    def request(self) -> dict[str, Any]:
        """Give the request that would define it as it is now."""
        given = {**canonical.parse(self.labels)}
        given.pop(LABEL, None)
        body = {
            "name": self.name,
            "cron": self.cron,
            "timeZone": self.time_zone,
            "missed": self.missed,
            "overlap": self.overlap,
            "enabled": self.enabled,
            **self.job(),
            "labels": given,
        }
        return {name: value for name, value in body.items() if value is not None}

    def job(self) -> dict[str, Any]:
        """Give the request that would submit its job now."""
        body = {
            "type": self.type,
            "version": self.version,
            "priority": PRIORITY_WORDS[self.priority],
            "maxAttempts": self.max_attempts,
            "labels": canonical.parse(self.labels),
            "subject": self.subject,
            "callbackUrl": self.callback_url,
        }
        given = {name: value for name, value in body.items() if value is not None}
        if self.items is None:
            return {**given, "data": canonical.parse(self.data or "null")}
        policy = canonical.parse(self.batch or "{}")
        return {**given, **policy, "items": canonical.parse(self.items)}


async def get(
    connection: AsyncConnection, name: UUID | str, reach: Reach, *, lock: bool = False
) -> Schedule:
    """Give a schedule by its id or name; NotFound if there is none within reach."""
    table = schedules.c
    which = table.id == name if isinstance(name, UUID) else table.name == name
    wanted = select(*_columns()).where(which, table.tenant == reach.tenant, _typed(reach))
    if lock:
        wanted = wanted.with_for_update(key_share=True)
    row = (await connection.execute(wanted)).one_or_none()
    if row is None:
        raise NotFound(f"there is no schedule {str(name)[:80]!r}")
    return Schedule(*row)


async def newest(
    connection: AsyncConnection, reach: Reach, *, before: UUID | None, limit: int
) -> list[Schedule]:
    """List schedules without data and items, newest first, older than `before`."""
    table = schedules.c
    wanted = select(*_columns(without=("data", "items"))).where(
        table.tenant == reach.tenant, _typed(reach)
    )
    if before is not None:
        wanted = wanted.where(table.id < before)
    found = await connection.execute(wanted.order_by(table.id.desc()).limit(limit))
    return [Schedule(*row) for row in found]


_CREATE = """
INSERT INTO filaviva.schedules (id, tenant, name, cron, time_zone, missed, enabled, type, version,
    data, priority, max_attempts, labels, subject, submitted_by, callback_url, overlap, items,
    batch, fingerprint, next_fire_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::jsonb, $11, $12, $13::text::jsonb, $14, $15,
    $16, $17, $18::text::jsonb, $19::text::jsonb, $20, $21)
ON CONFLICT (tenant, name) DO NOTHING
RETURNING id
"""


async def create(
    connection: AsyncConnection, definition: Definition, *, author: str
) -> tuple[Schedule, bool]:
    """Keep a new schedule; False: the same request had made it before."""
    tenant, reach = definition.job.tenant, Reach(definition.job.tenant)
    first = await _following(connection, definition.cron)
    values = (
        uuid7(),
        tenant,
        definition.name,
        *_values(definition),
        definition.fingerprint,
        first,
    )
    made = (await connection.exec_driver_sql(_CREATE, values)).scalar()
    if made is not None:
        await _record(connection, "schedule.created", await get(connection, made, reach), author)
        return await get(connection, made, reach), True
    kept = await connection.scalar(
        select(schedules.c.fingerprint).where(
            schedules.c.tenant == tenant, schedules.c.name == definition.name
        )
    )
    if kept != definition.fingerprint:
        detail = f"there is a schedule {definition.name!r} already: change it, or choose a new name"
        raise Rejected("conflict", detail, status=409)
    return await get(connection, definition.name, reach), False


_CHANGE = """
UPDATE filaviva.schedules SET cron = $2, time_zone = $3, missed = $4, enabled = $5, type = $6,
    version = $7, data = $8::text::jsonb, priority = $9, max_attempts = $10,
    labels = $11::text::jsonb, subject = $12, submitted_by = $13, callback_url = $14,
    overlap = $15, items = $16::text::jsonb, batch = $17::text::jsonb, next_fire_at = $18,
    error = NULL, updated_at = clock_timestamp()
WHERE id = $1
"""


async def change(
    connection: AsyncConnection, found: Schedule, definition: Definition, *, author: str
) -> Schedule:
    """Make a schedule, locked by `get`, what the definition says; it fires next from now on."""
    # Another calendar begins now, and what came while it was paused was not wanted.
    same = (found.cron, found.time_zone) == (definition.cron.text, definition.cron.zone.key)
    going_on = same and found.enabled and found.next_fire_at is not None
    following = found.next_fire_at if going_on else await _following(connection, definition.cron)
    await connection.exec_driver_sql(_CHANGE, (found.id, *_values(definition), following))
    changed = await get(connection, found.id, Reach(found.tenant))
    await _record(connection, "schedule.changed", changed, author)
    return changed


# What waited when it was paused is not wanted any more.
_ENABLE = """
UPDATE filaviva.schedules SET enabled = $2, next_fire_at = $3, error = NULL, waiting = '{}',
    look_again_at = NULL, updated_at = clock_timestamp()
WHERE id = $1
"""


async def enable(
    connection: AsyncConnection, found: Schedule, *, enabled: bool, author: str
) -> Schedule:
    """Pause a schedule, locked by `get`, or let it go on: from now, not from where it stopped."""
    if found.enabled == enabled:
        return found
    following = found.next_fire_at
    if enabled:
        following = await _following(connection, Cron.read(found.cron, found.time_zone))
    await connection.exec_driver_sql(_ENABLE, (found.id, enabled, following))
    changed = await get(connection, found.id, Reach(found.tenant))
    verb = "schedule.resumed" if enabled else "schedule.paused"
    await _record(connection, verb, changed, author)
    return changed


async def remove(connection: AsyncConnection, found: Schedule, *, author: str) -> None:
    """Remove a schedule, locked by `get`; its jobs stay."""
    await connection.execute(schedules.delete().where(schedules.c.id == found.id))
    await _record(connection, "schedule.removed", found, author)


async def fired(connection: AsyncConnection, found: Schedule, job_id: UUID, *, author: str) -> None:
    """Remember that somebody fired it out of turn."""
    detail = {"name": found.name, "jobId": str(job_id)}
    await audit.record(
        connection,
        author=author,
        action="schedule.fired",
        tenant=found.tenant,
        target=str(found.id),
        detail=detail,
    )


async def _following(connection: AsyncConnection, cron: Cron) -> datetime | None:
    now: datetime | None = await connection.scalar(select(func.clock_timestamp()))
    assert now is not None  # noqa: S101 - a clock always answers
    return next(cron.after(now), None)


def _values(definition: Definition) -> tuple[Any, ...]:
    job = definition.job
    return (
        definition.cron.text,
        definition.cron.zone.key,
        definition.missed,
        definition.enabled,
        job.type,
        job.version,
        job.payload,
        job.priority,
        definition.max_attempts,
        labels(definition),
        job.subject,
        job.submitted_by,
        job.callback_url,
        definition.overlap,
        definition.items,
        definition.policy,
    )


async def _record(
    connection: AsyncConnection, action: str, schedule: Schedule, author: str
) -> None:
    detail: Mapping[str, Any] = {
        "name": schedule.name,
        "cron": schedule.cron,
        "timeZone": schedule.time_zone,
        "type": schedule.type,
    }
    await audit.record(
        connection,
        author=author,
        action=action,
        tenant=schedule.tenant,
        target=str(schedule.id),
        detail=detail,
    )


def _columns(*, without: Collection[str] = ()) -> Sequence[Any]:
    columns: list[Any] = []
    for name in (one.name for one in fields(Schedule)):
        if name in without:
            columns.append(null().label(name))
        elif name in ("data", "items", "batch", "labels"):
            # As text: the driver's own parsing would make floats of exact numbers.
            columns.append(cast(schedules.c[name], Text).label(name))
        else:
            columns.append(schedules.c[name])
    return columns


def _typed(reach: Reach) -> Any:
    return true() if reach.types is None else of_types(schedules.c.type, reach.types)
