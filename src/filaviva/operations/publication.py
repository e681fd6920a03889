"""Publish an event over HTTP: its jobs, and a copy for whoever else listens, in one commit.

Before: an event that fits its contract. After: in the caller's transaction one job for each handler
is stored, and the copy is in the outbox; to our own handlers the copy is a duplicate.
May happen twice: the same event again gives the same jobs; its name with another meaning is
Rejected, and nothing is stored.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import contents, events, inbox, outbox
from filaviva.broker.topology import Topology
from filaviva.database.fetch import fetch
from filaviva.errors import Rejected
from filaviva.events import Event
from filaviva.operations.events import take
from filaviva.operations.quotas import Quotas
from filaviva.outbox import NewMessage, OutboxRow
from filaviva.turns import Gate
from filaviva_contracts.names import wire_type

# What the attributes take that are not the publisher's to choose, or bounded by the request.
_OURS: Final = 2 * 1024
_EXPONENT: Final = re.compile("[0-9][eE]")
_SIZE: Final = "SELECT octet_length($1::jsonb::text)"

_JOBS: Final = """
SELECT id, type, state FROM filaviva.jobs
WHERE tenant = $1 AND idempotency_key = ANY($2::text[]) ORDER BY type
"""


@dataclass(frozen=True, slots=True)
class EventJob:
    """The job that an event is for one of its handlers."""

    id: UUID
    type: str
    status: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Published:
    """What became of it, and the messages to hand over after the commit."""

    jobs: Sequence[EventJob]
    duplicate: bool
    rows: Sequence[OutboxRow] = field(default_factory=list)


async def publish(  # noqa: PLR0913 - what comes, from whom, and what bounds it
    connection: AsyncConnection,
    event: Event,
    attributes: Mapping[str, Any],
    *,
    value: Any,
    author: str,
    gate: Gate | None = None,
    quotas: Quotas | None = None,
) -> Published:
    """Store it; `attributes` are those of its envelope, for the copy, `value` its data, parsed."""
    first = await _first(connection, event)
    taken = await take(
        connection, [event], queue=None, submitted_by=author, gate=gate, quotas=quotas
    )
    if taken.reused:
        raise _reused(event)
    rows = [*taken.rows]
    if first:
        data, more = await _carried(connection, event, attributes, value)
        rows += await outbox.add(connection, [_copy(event, data, more)])
    found = await fetch(connection, _JOBS, (event.tenant, list(taken.keys)))
    jobs = [EventJob(row[0], row[1], row[2], row[0] not in taken.created) for row in found]
    duplicate = all(job.duplicate for job in jobs) if jobs else not first
    return Published(jobs, duplicate, rows)


async def _carried(
    connection: AsyncConnection, event: Event, attributes: Mapping[str, Any], value: Any
) -> tuple[str, Mapping[str, Any]]:
    """Give the data of the copy, and its attributes: what is too large goes by reference."""
    room = events.LARGEST - _OURS - len(json.dumps(dict(attributes)))
    if await _written(connection, event.data) <= room:
        return event.data, attributes
    kept = await contents.keep(connection, event.tenant, event.data, value)
    return "null", {**attributes, "dataref": kept.dataref}


async def _written(connection: AsyncConnection, data: str) -> int:
    """Give how many bytes the data has at most as PostgreSQL will write it."""
    if _EXPONENT.search(data):  # it writes 1e300 out in full
        ((size,),) = await fetch(connection, _SIZE, (data,))
        return int(size)
    # Beyond what we write, a space after each comma and colon.
    return len(data.encode()) + data.count(",") + data.count(":")


async def _first(connection: AsyncConnection, event: Event) -> bool:
    known = await inbox.enter_with_hash(connection, event.publication, event.key, event.body_hash)
    if known.body_hash != event.body_hash:
        raise _reused(event)
    return known.first


def _reused(event: Event) -> Rejected:
    named = f"{event.id[:100]!r} of {event.source[:100]}"
    detail = f"the event {named} was published with other content before: use a new id"
    return Rejected("idempotency_key_reused", detail, status=422)


def _copy(event: Event, data: str, attributes: Mapping[str, Any]) -> NewMessage:
    kind = wire_type(event.type, event.version)
    return NewMessage(
        exchange=Topology().events,
        routing_key=kind,
        message_id=events.message_id(event),
        event_id=event.id,
        type=kind,
        data=data,
        correlation_id=event.correlation_id,
        traceparent=event.traceparent,
        attributes=json.dumps(dict(attributes)),
    )
