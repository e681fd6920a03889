"""Messages that leave when the caller's transaction commits.

Before: a message and an open transaction. After: a row that shares the fate of the caller's own
writes, locked for the committer, who hands it to the relay. May happen twice: no.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

# For every statement that inserts outbox rows: what `row` reads. The pause is computed by the
# database's clock, the only one that is compared. A job has its tracestate in its own row: only who
# makes both in one statement cannot see it yet, and knows it.
RETURNING = """id, exchange, routing_key, message_id, event_id, type, data::text AS data, job_id,
    epoch, correlation_id, traceparent, priority,
    extract(epoch FROM not_before - clock_timestamp())::float8 AS pause_seconds,
    mandatory, created_at, parked_at IS NOT NULL AS parked, attributes::text AS attributes,
    CASE WHEN traceparent IS NULL THEN NULL
        WHEN job_id IS NULL THEN attributes->>'tracestate'
        ELSE (SELECT jobs.tracestate FROM filaviva.jobs AS jobs WHERE jobs.id = job_id)
    END AS tracestate"""


@dataclass(frozen=True, slots=True)
class OutboxTable:
    """Where outbox rows are, and how they are read as such."""

    name: str
    returning: str

    def instead(self, statement: str) -> str:
        """Give a statement on our table as one on this table."""
        return statement.replace(RETURNING, self.returning).replace(OURS.name, self.name)


OURS = OutboxTable("filaviva.outbox", RETURNING)

_ADD = f"""
INSERT INTO filaviva.outbox (exchange, routing_key, message_id, event_id, type, data, job_id, epoch,
    correlation_id, traceparent, priority, not_before, mandatory, attributes)
SELECT exchange, routing_key, message_id, event_id, type, data::jsonb, job_id, epoch,
    correlation_id, traceparent, priority, not_before, mandatory, attributes::jsonb
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[],
    $8::bigint[], $9::text[], $10::text[], $11::smallint[], $12::timestamptz[], $13::boolean[],
    $14::text[]) WITH ORDINALITY AS new(exchange, routing_key, message_id, event_id, type, data,
    job_id, epoch, correlation_id, traceparent, priority, not_before, mandatory, attributes, place)
ORDER BY place
RETURNING {RETURNING}
"""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to leave with the transaction; `data` is JSON text.

    So are `attributes`: those of the CloudEvents envelope that are not ours to choose.
    """

    exchange: str
    routing_key: str
    message_id: str
    type: str
    data: str
    job_id: UUID | None = None
    epoch: int | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    priority: int | None = None
    not_before: datetime | None = None
    event_id: str | None = None
    mandatory: bool = True
    attributes: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A committed row on its way to the broker."""

    id: int
    exchange: str
    routing_key: str
    message_id: str
    event_id: str | None
    type: str
    data: str
    job_id: UUID | None
    epoch: int | None
    correlation_id: str | None
    traceparent: str | None
    priority: int | None
    pause_seconds: float | None
    mandatory: bool
    created_at: datetime
    parked: bool
    attributes: str | None = None
    tracestate: str | None = None
    hop: str | None = None  # never stored: the traceparent of what has just made the row


def row(record: Any) -> OutboxRow:
    """Read what a statement with RETURNING gave back; it may hold more columns."""
    found = record if isinstance(record, Mapping) else record._mapping  # noqa: SLF001 - public
    return OutboxRow(
        found["id"],
        found["exchange"],
        found["routing_key"],
        found["message_id"],
        found["event_id"],
        found["type"],
        found["data"],
        found["job_id"],
        found["epoch"],
        found["correlation_id"],
        found["traceparent"],
        found["priority"],
        found["pause_seconds"],
        found["mandatory"],
        found["created_at"],
        found["parked"],
        found["attributes"],
        found["tracestate"],
    )


def rows(records: Iterable[Any]) -> list[OutboxRow]:
    """Read all of them."""
    return [row(record) for record in records]


async def add(connection: AsyncConnection, messages: Sequence[NewMessage]) -> list[OutboxRow]:
    """Insert the messages into the caller's transaction; hand the rows over after the commit."""
    if not messages:
        return []
    columns = [
        [getattr(message, column) for message in messages]
        for column in (
            "exchange",
            "routing_key",
            "message_id",
            "event_id",
            "type",
            "data",
            "job_id",
            "epoch",
            "correlation_id",
            "traceparent",
            "priority",
            "not_before",
            "mandatory",
            "attributes",
        )
    ]
    added = await connection.exec_driver_sql(_ADD, tuple(columns))
    records: Sequence[Sequence[Any]] = added.all()
    return [OutboxRow(*record) for record in records]


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much waits in the outbox, and since when the oldest that is not parked."""

    pending: int
    parked: int
    oldest: datetime | None


async def backlog(connection: AsyncConnection) -> Backlog:
    """Measure the outbox."""
    result = await connection.exec_driver_sql(
        "SELECT count(*) FILTER (WHERE parked_at IS NULL), count(*) FILTER (WHERE parked_at IS NOT"
        " NULL), min(created_at) FILTER (WHERE parked_at IS NULL) FROM filaviva.outbox"
    )
    measured: Sequence[Any] = result.one()
    return Backlog(measured[0], measured[1], measured[2])
