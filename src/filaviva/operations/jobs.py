"""Read jobs and what happened to them: one tenant's, newest first.

Before: somebody asks. After: rows as they are now. May happen twice: reading changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Select,
    Text,
    and_,
    cast,
    exists,
    false,
    func,
    literal,
    null,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import tables
from filaviva.operations.reach import of_types
from filaviva.operations.tombstones import absent

_JSON_COLUMNS = ("progress", "result", "error", "labels", "data")

# What is no column: asked for queued jobs only.
_ASKED: Final = {
    "in_line": and_(
        tables.jobs.c.state == "queued",
        exists().where(tables.turns.c.job_id == tables.jobs.c.id),
    ),
    "early": func.coalesce(tables.jobs.c.not_before > func.clock_timestamp(), false()),
}


@dataclass(frozen=True, slots=True)
class Reach:
    """Whose jobs may be seen: one tenant's, perhaps of some types only."""

    tenant: str
    types: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """Which jobs of a tenant are wanted."""

    statuses: tuple[str, ...] = ()
    type: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    parent: UUID | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is now; progress, result, error and labels are JSON text."""

    id: UUID
    type: str
    version: int
    state: str
    attempt: int
    max_attempts: int
    progress: str | None
    not_before: datetime | None
    deadline: datetime | None
    cost_usd: Decimal
    result: str | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    labels: str
    subject: str | None
    submitted_by: str | None
    parked_reason: str | None
    parent_id: UUID | None
    item_index: int | None
    removed: Sequence[str] | None
    erased_at: datetime | None
    in_line: bool  # it waits for its turn
    early: bool  # its time has not come

    @property
    def is_batch(self) -> bool:
        """Whether the job is a batch: then it is parked for its items all its life."""
        return self.parked_reason == "items"


@dataclass(frozen=True, slots=True)
class Item:
    """A batch's item as it is now; result and error are JSON text."""

    id: UUID
    item_index: int
    state: str
    attempt: int
    cost_usd: Decimal
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution; `outcome` None: it has not ended."""

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    error_class: str | None
    error_code: str | None
    error_message: str | None
    step: str | None
    pause_seconds: float | None
    cost_usd: Decimal


@dataclass(frozen=True, slots=True)
class Step:
    """A checkpointed part of an attempt."""

    name: str
    revision: int
    attempt: int
    state: str
    tool: str | None
    started_at: datetime
    finished_at: datetime | None
    cost_usd: Decimal


@dataclass(frozen=True, slots=True)
class LlmCall:
    """A recorded model call; `cost_usd` None: no price is known."""

    id: int
    attempt: int
    step: str | None
    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Decimal | None
    price_source: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a job's timeline; `data` is JSON text."""

    id: int
    at: datetime
    kind: str
    data: str


async def get(connection: AsyncConnection, job_id: UUID, reach: Reach) -> Job:
    """Give a job; NotFound if there is none, or none within reach."""
    found, _ = await get_with(connection, job_id, reach)
    return found


async def get_with(
    connection: AsyncConnection, job_id: UUID, reach: Reach, *more: Any
) -> tuple[Job, tuple[Any, ...]]:
    """Give a job, and more expressions as of the same moment."""
    jobs = tables.jobs
    columns = _columns(Job, jobs)
    wanted = select(*columns, *more).where(
        jobs.c.id == job_id, jobs.c.tenant == reach.tenant, _typed(reach)
    )
    row = (await connection.execute(wanted)).one_or_none()
    if row is None:
        raise await absent(connection, job_id, reach.tenant, reach.types)
    return Job(*row[: len(columns)]), tuple(row[len(columns) :])


async def tenant_of(connection: AsyncConnection, job_id: UUID) -> str:
    """Tell whose job it is, to whoever may see everybody's; NotFound if there is none."""
    jobs = tables.jobs
    found: str | None = await connection.scalar(select(jobs.c.tenant).where(jobs.c.id == job_id))
    if found is None:
        raise await absent(connection, job_id)
    return found


async def newest(
    connection: AsyncConnection,
    reach: Reach,
    filters: Filters,
    *,
    before: UUID | None,
    limit: int,
) -> list[Job]:
    """List jobs without their results, newest first, older than `before`."""
    jobs = tables.jobs
    wanted = _filtered(select(*_columns(Job, jobs, without="result")), reach, filters)
    if before is not None:
        wanted = wanted.where(jobs.c.id < before)
    found = await connection.execute(wanted.order_by(jobs.c.id.desc()).limit(limit))
    return [Job(*row) for row in found]


def _filtered(wanted: Select[Any], reach: Reach, filters: Filters) -> Select[Any]:
    jobs = tables.jobs
    wanted = wanted.where(jobs.c.tenant == reach.tenant, _typed(reach))
    if filters.statuses:
        wanted = wanted.where(jobs.c.state.in_(filters.statuses))
    if filters.type is not None:
        wanted = wanted.where(of_types(jobs.c.type, [filters.type]))
    else:  # what we submit ourselves is shown to whoever asks for it
        wanted = wanted.where(jobs.c.type.not_like("filaviva.%"))
    if filters.parent is not None:
        wanted = wanted.where(jobs.c.parent_id == filters.parent)
    if filters.labels:
        # The second condition is the partial index's.
        wanted = wanted.where(
            jobs.c.labels.contains(dict(filters.labels)), jobs.c.labels != cast({}, JSONB)
        )
    return wanted


def _typed(reach: Reach) -> Any:
    return true() if reach.types is None else of_types(tables.jobs.c.type, reach.types)


async def items(  # noqa: PLR0913 - which of them, and how much of each
    connection: AsyncConnection,
    batch_id: UUID,
    *,
    statuses: Sequence[str] = (),
    after: int = -1,
    limit: int = 1000,
    longest: int | None = None,
) -> list[Item]:
    """List a batch's items in their order, those of these states only if any are named.

    `longest`: of a result's JSON text no more than the first so many characters.
    """
    table = tables.jobs
    columns = _columns(Item, table)
    if longest is not None:
        columns = [_cut(each, longest) if each.name == "result" else each for each in columns]
    wanted = (
        select(*columns)
        .where(table.c.parent_id == batch_id, table.c.item_index > _place(after))
        .order_by(table.c.item_index)
        .limit(limit)
    )
    if statuses:
        wanted = wanted.where(table.c.state.in_(statuses))
    return [Item(*row) for row in await connection.execute(wanted)]


async def attempts(
    connection: AsyncConnection, job_id: UUID, *, after: int = 0, limit: int = 1000
) -> list[Attempt]:
    """List a job's attempts in their order."""
    table = tables.attempts
    wanted = (
        select(*_columns(Attempt, table))
        .where(table.c.job_id == job_id, table.c.number > _place(after))
        .order_by(table.c.number)
        .limit(limit)
    )
    return [Attempt(*row) for row in await connection.execute(wanted)]


async def steps(connection: AsyncConnection, job_id: UUID) -> list[Step]:
    """List a job's steps in the order in which they began."""
    table = tables.steps
    wanted = (
        select(*_columns(Step, table))
        .where(table.c.job_id == job_id)
        .order_by(table.c.revision, table.c.started_at, table.c.name)
    )
    return [Step(*row) for row in await connection.execute(wanted)]


async def llm_calls(
    connection: AsyncConnection, job_id: UUID, *, after: int = 0, limit: int = 1000
) -> list[LlmCall]:
    """List a job's recorded model calls in their order."""
    table = tables.llm_calls
    wanted = (
        select(*_columns(LlmCall, table))
        .where(table.c.job_id == job_id, table.c.id > after)
        .order_by(table.c.id)
        .limit(limit)
    )
    return [LlmCall(*row) for row in await connection.execute(wanted)]


async def timeline(
    connection: AsyncConnection, job_id: UUID, *, after: int = 0, limit: int = 1000
) -> list[Event]:
    """List what happened to a job, in order."""
    table = tables.job_events
    wanted = (
        select(*_columns(Event, table))
        .where(table.c.job_id == job_id, table.c.id > after)
        .order_by(table.c.id)
        .limit(limit)
    )
    return [Event(*row) for row in await connection.execute(wanted)]


def _cut(column: Any, most: int) -> Any:
    return func.left(column.element, most).label(column.name)


def _place(after: int) -> Any:
    # A cursor is not signed: what it says may be more than the column holds.
    return literal(after, BigInteger)


# xmin, the transaction that wrote this version of the row, changes with every update.
_VERSIONS = "SELECT id, xmin::text AS version FROM filaviva.jobs WHERE id = ANY($1::uuid[])"


async def row_versions(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Tell which version each of these jobs' rows has, cheaply: another one means it changed."""
    found = await connection.exec_driver_sql(_VERSIONS, (sorted(ids),))
    return {row.id: row.version for row in found}


def _columns(shape: Any, table: Any, *, without: str = "") -> list[Any]:
    columns: list[Any] = []
    for name in (one.name for one in fields(shape)):
        if name == without:
            columns.append(null().label(name))
        elif name in _ASKED:
            columns.append(_ASKED[name].label(name))
        elif name in _JSON_COLUMNS:
            # As text: the driver's own parsing would make floats of exact numbers.
            columns.append(cast(table.c[name], Text).label(name))
        else:
            columns.append(table.c[name])
    return columns
