"""Make jobs of events: one for each handler, however often and on whatever way an event comes.

Before: an event that is not acknowledged, or a request that is not answered.
After: in the caller's transaction each handler's inbox knows the event and its job is stored.
May happen twice: the inbox of the handler lets the second one go; the same name with another
meaning is told apart, and makes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import uuid_utils
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import canonical, turns
from filaviva.database.fetch import fetch
from filaviva.events import Event
from filaviva.operations.birth import New, Stored, store_all
from filaviva.operations.quotas import Quotas
from filaviva.operations.submission import PRIORITIES, Submission
from filaviva.outbox import OutboxRow

_HANDLERS: Final = """
SELECT c.event, c.version, c.type, c.queue, coalesce((c.policy->>'maxAttempts')::int, 5),
    c.deprecated_at IS NULL, coalesce(c.inbox_queue, c.queue)
FROM unnest($1::text[], $2::int[]) AS wanted(event, version)
JOIN filaviva.contracts AS c USING (event, version)
"""

# A second copy waits here for the first one's commit, and then counts as its duplicate.
_ENTER: Final = """
INSERT INTO filaviva.inbox AS inbox (consumer, message_id, body_hash)
SELECT consumer, key, hash
FROM unnest($1::text[], $2::text[], $3::bytea[]) AS x(consumer, key, hash)
ON CONFLICT (consumer, message_id) DO UPDATE SET duplicates = inbox.duplicates + 1
RETURNING consumer, message_id, body_hash, duplicates
"""

_KNOWN: Final = """
SELECT consumer, message_id, body_hash
FROM unnest($1::text[], $2::text[]) AS x(consumer, message_id)
JOIN filaviva.inbox USING (consumer, message_id)
"""

# What a label's value may hold.
_LONGEST_LABEL: Final = 256


@dataclass(frozen=True, slots=True)
class HandlerOf:
    """A handler of an event, as it is published."""

    job_type: str
    queue: str
    max_attempts: int
    live: bool
    inbox_queue: str  # where it was first: it may move, and knows what it has had all the same

    @property
    def name(self) -> str:
        """What the event's job type adds to the event."""
        return self.job_type.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of events: messages to hand over after the commit, and who was which."""

    rows: Sequence[OutboxRow] = ()
    created: Mapping[UUID, str] = field(default_factory=dict)  # job, its type
    unknown: Sequence[Event] = ()  # nobody has published a handler
    reused: Sequence[Event] = ()  # known by another meaning
    duplicates: int = 0
    keys: Sequence[str] = ()  # the idempotency keys of all their jobs
    first: Sequence[Event] = ()  # those that are new to some handler


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One event for one handler."""

    event: Event
    handler: HandlerOf

    @property
    def key(self) -> tuple[str, str]:
        return self.event.consumer(self.handler.inbox_queue, self.handler.name), self.event.key


async def take(  # noqa: PLR0913 - what comes, for whom, and what bounds it
    connection: AsyncConnection,
    events: Sequence[Event],
    *,
    queue: str | None,
    submitted_by: str | None = None,
    gate: turns.Gate | None = None,
    quotas: Quotas | None = None,
) -> Taken:
    """Make one job of each event for each handler on the queue (None: on any).

    An event that came to a queue whose handler has moved is made a job of where it is now; when
    nobody handles it any more, of who did. Over its tenant's limits it is Rejected.
    """
    handlers = await _handlers(connection, events)
    wanted = [
        _Wanted(event, handler)
        for event in events
        for handler in _chosen(handlers.get((event.type, event.version), ()), queue)
    ]
    entered = await _enter(connection, wanted)
    jobs = [
        (UUID(bytes=uuid_utils.uuid7().bytes), _submission(one, submitted_by))
        for one in entered.first
    ]
    if quotas is not None:
        await _admit(connection, jobs, quotas)
    named = {one.event for one in wanted}
    return Taken(
        rows=(await _store(connection, jobs, gate)).rows,
        created={job_id: submission.type for job_id, submission in jobs},
        unknown=[event for event in events if event not in named],
        reused=list(dict.fromkeys(one.event for one in entered.reused)),
        duplicates=entered.duplicates,
        keys=[job_key(one.event, one.handler) for one in wanted],
        first=list(dict.fromkeys(one.event for one in entered.first)),
    )


async def _admit(connection: AsyncConnection, jobs: New, quotas: Quotas) -> None:
    # However many handlers there are, who publishes an event has submitted once.
    events = {submission.labels: submission for _, submission in jobs}
    for refusal in (await quotas.refusals(connection, [*events.values()])).values():
        raise refusal


async def _store(connection: AsyncConnection, jobs: New, gate: turns.Gate | None) -> Stored:
    # One job waits for nobody; of many, those that the queue cannot do with wait for their turn.
    if gate is None and len(jobs) > 1:
        gate = await turns.moment(connection)
    return await store_all(connection, jobs, gate)


async def reused(connection: AsyncConnection, events: Iterable[Event]) -> frozenset[Event]:
    """Tell which events some handler has had with another meaning."""
    several = list(events)
    if not several:
        return frozenset()
    handlers = await _handlers(connection, several)
    wanted = [
        _Wanted(event, handler)
        for event in several
        for handler in handlers.get((event.type, event.version), ())
    ]
    keys = sorted({one.key for one in wanted})
    columns = ([consumer for consumer, _ in keys], [key for _, key in keys])
    known = {(row[0], row[1]): bytes(row[2]) for row in await fetch(connection, _KNOWN, columns)}
    other = [one for one in wanted if known.get(one.key) not in (None, one.event.body_hash)]
    return frozenset(one.event for one in other)


async def _handlers(
    connection: AsyncConnection, events: Iterable[Event]
) -> dict[tuple[str, int], list[HandlerOf]]:
    kinds = sorted({(event.type, event.version) for event in events})
    arguments = ([kind for kind, _ in kinds], [version for _, version in kinds])
    found: dict[tuple[str, int], list[HandlerOf]] = {}
    for event, version, *handler in await fetch(connection, _HANDLERS, arguments):
        found.setdefault((event, version), []).append(HandlerOf(*handler))
    return found


def _chosen(handlers: Sequence[HandlerOf], queue: str | None) -> list[HandlerOf]:
    live = [handler for handler in handlers if handler.live]
    if queue is None:
        return live
    here = [handler for handler in live if handler.queue == queue]
    return here or live or list(handlers)


@dataclass(frozen=True, slots=True)
class _Entered:
    first: Sequence[_Wanted]
    reused: Sequence[_Wanted]
    duplicates: int


async def _enter(connection: AsyncConnection, wanted: Sequence[_Wanted]) -> _Entered:
    # Twice the same key in one upsert is an error for ever; one order for all avoids deadlocks.
    named: dict[tuple[str, str], _Wanted] = {}
    for one in wanted:
        named.setdefault(one.key, one)
    ordered = sorted(named)
    if not ordered:
        return _Entered((), (), 0)
    hashes = [named[key].event.body_hash for key in ordered]
    columns = ([consumer for consumer, _ in ordered], [key for _, key in ordered], hashes)
    known = {
        (row[0], row[1]): (bytes(row[2]), row[3])
        for row in await fetch(connection, _ENTER, columns)
    }
    first = [named[key] for key in ordered if known[key][1] == 0]
    reused = [one for one in wanted if known[one.key][0] != one.event.body_hash]
    return _Entered(first, reused, len(wanted) - len(first) - len(reused))


def _submission(wanted: _Wanted, submitted_by: str | None) -> Submission:
    event, handler = wanted.event, wanted.handler
    return Submission(
        tenant=event.tenant,
        idempotency_key=job_key(event, handler),
        fingerprint=event.body_hash,
        type=handler.job_type,
        version=event.version,
        queue=handler.queue,
        payload=event.data,
        max_attempts=handler.max_attempts,
        priority=PRIORITIES["normal"],
        not_before=None,
        deadline=None,
        labels=canonical.dumps(
            {"event.id": event.id[:_LONGEST_LABEL], "event.source": event.source[:_LONGEST_LABEL]}
        ),
        subject=None,
        submitted_by=submitted_by,
        correlation_id=event.correlation_id,
        traceparent=event.traceparent,
        tracestate=event.tracestate,
    )


def job_key(event: Event, handler: HandlerOf) -> str:
    """Give the idempotency key of the job; no client can choose it, since clients write ASCII."""
    return f"{event.consumer(handler.inbox_queue, handler.name)} \N{RIGHTWARDS ARROW} {event.key}"
