"""Dead letters: messages and jobs that a person must look at.

Before: a consumer judged what arrived; its job and group are locked by the caller's transaction.
After: the letter is on record, once for each epoch of a job.
May happen twice: filing the same (job, epoch) again adds nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import Text, cast, select
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import as_dict
from filaviva.database.tables import dead_letters, jobs
from filaviva.errors import NotFound
from filaviva.operations import audit
from filaviva.operations.figures import moment, money
from filaviva.operations.reach import EVERYTHING, Reach
from filaviva.operations.redaction import redacted, redacted_message, revealed_message


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the message stood when it died; `raw` only if it is no job of ours."""

    message_id: str | None = None
    source_queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    raw: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLetter:
    """A letter as it is filed; its text holds nothing that PostgreSQL cannot store."""

    id: UUID
    reason: str
    group_id: UUID
    job_id: UUID | None = None
    epoch: int | None = None
    tenant: str | None = None
    type: str | None = None
    version: int | None = None
    error: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 0
    cost_usd: Decimal = Decimal(0)
    origin: Origin = Origin()


_FILE = """
INSERT INTO filaviva.dead_letters (id, reason, group_id, job_id, epoch, tenant, type, version,
    error, attempts, cost_usd, message_id, source_queue, exchange, routing_key, content_type,
    headers, raw)
SELECT id, reason, group_id, job_id, epoch, tenant, type, version, error::jsonb, attempts,
    cost_usd, message_id, source_queue, exchange, routing_key, content_type, headers::jsonb, raw
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[], $5::bigint[], $6::text[], $7::text[],
    $8::int[], $9::text[], $10::int[], $11::numeric[], $12::text[], $13::text[], $14::text[],
    $15::text[], $16::text[], $17::text[], $18::bytea[])
    AS x(id, reason, group_id, job_id, epoch, tenant, type, version, error, attempts, cost_usd,
        message_id, source_queue, exchange, routing_key, content_type, headers, raw)
ORDER BY id
ON CONFLICT (job_id, epoch) DO NOTHING
"""
_FILED = """
SELECT job_id, epoch FROM filaviva.dead_letters
WHERE (job_id, epoch) IN (SELECT * FROM unnest($1::uuid[], $2::bigint[]))
"""


async def file(connection: AsyncConnection, letters: Sequence[NewLetter]) -> None:
    """Put the letters on record."""
    if letters:
        rows = [_row(letter) for letter in letters]
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        await connection.exec_driver_sql(_FILE, columns)


async def filed(
    connection: AsyncConnection, keys: Sequence[tuple[UUID, int]]
) -> frozenset[tuple[UUID, int]]:
    """Tell which of these (job, epoch) have a letter; certain while their jobs are locked."""
    if not keys:
        return frozenset()
    ids, epochs = zip(*sorted(set(keys)), strict=True)
    found = await connection.exec_driver_sql(_FILED, (list(ids), list(epochs)))
    return frozenset((row.job_id, row.epoch) for row in found)


def _row(letter: NewLetter) -> tuple[Any, ...]:
    origin = letter.origin
    return (
        letter.id,
        letter.reason,
        letter.group_id,
        letter.job_id,
        letter.epoch,
        letter.tenant,
        letter.type,
        letter.version,
        json.dumps(dict(letter.error)),
        letter.attempts,
        letter.cost_usd,
        origin.message_id,
        origin.source_queue,
        origin.exchange,
        origin.routing_key,
        origin.content_type,
        json.dumps(dict(origin.headers)),
        origin.raw,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which letters are meant; None means any."""

    ids: tuple[UUID, ...] | None = None
    group: UUID | None = None
    job: UUID | None = None
    type: str | None = None
    error_class: str | None = None
    reason: str | None = None
    status: str | None = None

    def conditions(self) -> list[Any]:
        """Give them for a WHERE."""
        letter = dead_letters.c
        wanted = (
            (letter.group_id, self.group),
            (letter.job_id, self.job),
            (letter.type, self.type),
            (letter.error["class"].astext, self.error_class),
            (letter.reason, self.reason),
            (letter.status, self.status),
        )
        conditions: list[Any] = [column == value for column, value in wanted if value is not None]
        if self.ids is not None:
            conditions.append(letter.id.in_(self.ids))
        return conditions


async def page(
    connection: AsyncConnection,
    wanted: Filter,
    *,
    reach: Reach = EVERYTHING,
    after: UUID | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """List letters, newest first, starting after the one with the id `after`."""
    query = _letters(reach).where(*wanted.conditions())
    if after is not None:
        query = query.where(dead_letters.c.id < after)
    query = query.order_by(dead_letters.c.id.desc()).limit(limit)
    return [_public(as_dict(row)) for row in await connection.execute(query)]


async def get(
    connection: AsyncConnection, letter_id: UUID, *, reach: Reach = EVERYTHING
) -> dict[str, Any]:
    """Show one letter with all that is known, its content redacted."""
    return await _show(connection, letter_id, reach, reveal=False)


async def reveal(
    connection: AsyncConnection, letter_id: UUID, *, author: str, reach: Reach = EVERYTHING
) -> dict[str, Any]:
    """Show one letter with its content, and remember who looked."""
    shown = await _show(connection, letter_id, reach, reveal=True)
    await audit.record(
        connection,
        author=author,
        action="dead_letter.revealed",
        tenant=reach.tenant,
        target=str(letter_id),
    )
    return shown


def _letters(reach: Reach) -> Any:
    # Not `raw`: it may be 16 MiB.
    columns = [column for column in dead_letters.c if column.name != "raw"]
    return select(*columns).where(reach.letters())


async def _show(
    connection: AsyncConnection, letter_id: UUID, reach: Reach, *, reveal: bool
) -> dict[str, Any]:
    query = _letters(reach).where(dead_letters.c.id == letter_id)
    row = (await connection.execute(query)).first()
    if row is None:
        raise NotFound(f"found no dead letter {letter_id}")
    letter = as_dict(row)
    content = await _content(connection, letter, reveal=reveal)
    return {**_public(letter), **_details(letter), **content}


async def _content(
    connection: AsyncConnection, letter: Mapping[str, Any], *, reveal: bool
) -> dict[str, Any]:
    if letter["job_id"] is not None:
        columns = (cast(jobs.c.payload, Text), jobs.c.correlation_id, jobs.c.state, jobs.c.revision)
        job = (
            await connection.execute(select(*columns).where(jobs.c.id == letter["job_id"]))
        ).first()
        if job is not None:
            return {
                "payload": redacted(job[0], reveal=reveal),
                "correlationId": job.correlation_id,
                "jobStatus": job.state,
                "revision": job.revision,
            }
    raw = await connection.scalar(
        select(dead_letters.c.raw).where(dead_letters.c.id == letter["id"])
    )
    shown = revealed_message if reveal else redacted_message
    return {"payload": None if raw is None else shown(raw)}


def _public(row: Mapping[str, Any]) -> dict[str, Any]:
    error = row["error"] or {}
    return {
        "id": str(row["id"]),
        "jobId": None if row["job_id"] is None else str(row["job_id"]),
        "type": row["type"],
        "version": row["version"],
        "reason": row["reason"],
        "status": row["status"],
        "group": str(row["group_id"]),
        "error": {key: error.get(key) for key in ("class", "code", "message")},
        "attempts": row["attempts"],
        "costUsd": money(row["cost_usd"]),
        "createdAt": moment(row["created_at"]),
    }


def _details(row: Mapping[str, Any]) -> dict[str, Any]:
    error = row["error"] or {}
    replay = row["replay_id"]
    return {
        "tenant": row["tenant"],
        "epoch": row["epoch"],
        "frames": error.get("frames") or [],
        "step": error.get("step"),
        "messageId": row["message_id"],
        "sourceQueue": row["source_queue"],
        "exchange": row["exchange"],
        "routingKey": row["routing_key"],
        "contentType": row["content_type"],
        "headers": row["headers"],
        "replayId": None if replay is None else str(replay),
        "closedAt": moment(row["closed_at"]),
    }
