"""Move committed outbox rows to the broker.

Before: the row is committed, and locked for whoever publishes it. After: the broker has routed and
confirmed the message, and the row is deleted. May happen twice: after a crash between the two, or
an unknown confirm; the message keeps its id, and every consumer knows what it has had.
"""

import asyncio
import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import tracestate
from filaviva.broker.messages import (
    Confirmed,
    NotReady,
    Offending,
    Outgoing,
    Published,
    Unknown,
    Unroutable,
)
from filaviva.broker.topology import Topology
from filaviva.database.fetch import fetch
from filaviva.database.lines import Lines
from filaviva.database.transaction import DATABASE_ERRORS, transact
from filaviva.errors import Unreachable
from filaviva.failpoints import passing
from filaviva.outbox import OURS, RETURNING, OutboxRow, OutboxTable
from filaviva.service import first_of
from filaviva_contracts.envelope import Envelope
from filaviva_contracts.names import parse_wire_type, schema_uri

SOURCE = "filaviva"

# A row is born locked for 10 s; what we have not published by then belongs to the sweep.
_OURS_SECONDS = 8.0
_MOST_WAITING = 20_000
_DEFAULT_PRIORITY = 4
_LONGEST_ERROR = 500

# FOR UPDATE SKIP LOCKED lets many relays share the table; the commit ends the locks, and
# `locked_until` keeps the rows ours while we publish with no transaction open.
_FETCH = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM filaviva.outbox WHERE locked_until <= clock_timestamp()
    ORDER BY locked_until LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE filaviva.outbox SET locked_until = clock_timestamp() + $2::float8 * interval '1 second'
WHERE id = ANY (ARRAY(SELECT id FROM due ORDER BY id))
RETURNING {RETURNING}
"""

_DELETE = "DELETE FROM filaviva.outbox WHERE id = ANY ($1::bigint[])"

# Doubling pauses for what may work soon, a minute for what a person has to look at.
_KEEP = """
WITH kept AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::boolean[]) AS x(id, error, parked)),
locked AS MATERIALIZED (
    SELECT id FROM filaviva.outbox WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE)
UPDATE filaviva.outbox AS outbox SET
    tries = tries + 1, error = kept.error,
    parked_at = CASE WHEN kept.parked THEN coalesce(parked_at, clock_timestamp())
        ELSE parked_at END,
    locked_until = clock_timestamp() + interval '1 second' * CASE WHEN kept.parked THEN 60
        ELSE least(60, power(2, least(tries, 6))) * (0.5 + random() / 2) END
FROM kept JOIN locked USING (id) WHERE outbox.id = kept.id
"""


@dataclass(frozen=True, slots=True)
class BatchRelayed:
    """A batch of rows came back from the broker; the counts add up to its size."""

    confirmed: int
    unroutable: int
    offending: int
    not_ready: int
    unknown: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RowParked:
    """A row cannot be published as things are; it is tried each minute and never deleted."""

    row: OutboxRow
    kind: Literal["unroutable", "offending"]
    why: str


Fact: TypeAlias = BatchRelayed | RowParked
Listener: TypeAlias = Callable[[Fact], None]


class Publishing(Protocol):
    """What the relay needs of a publisher."""

    @property
    def healthy(self) -> bool: ...

    async def connect(self) -> None: ...

    async def publish(
        self, messages: Sequence[Outgoing], *, sent: Callable[[], None] | None = None
    ) -> list[Published]: ...


class Relay:
    """Publish at once what a committer hands over; sweep up what a crash has left."""

    def __init__(  # noqa: PLR0913 - each has its default
        self,
        engine: AsyncEngine,
        publisher: Publishing,
        *,
        topology: Topology | None = None,
        batch: int = 500,
        pause: timedelta = timedelta(seconds=1),
        lock: timedelta = timedelta(seconds=25),
        lanes: int = 2,
        listener: Listener | None = None,
        table: OutboxTable = OURS,
    ) -> None:
        self._engine = engine
        self._lines = Lines(engine)
        self._publisher = publisher
        self._topology = topology or Topology()
        self._batch = batch
        self._pause = pause.total_seconds()
        self._lock = lock.total_seconds()
        self._lanes = lanes
        self._listener = listener or _ignore
        self._fetch_due, self._delete, self._keep_back = map(
            table.instead, (_FETCH, _DELETE, _KEEP)
        )
        self._waiting: deque[tuple[OutboxRow, float]] = deque()
        self._arrived = asyncio.Event()
        self._hurried = asyncio.Event()
        self._confirmed: set[int] = set()  # published, and not yet deleted
        self._database_problem: str | None = None

    @property
    def pending(self) -> int:
        """How many rows wait in this process."""
        return len(self._waiting)

    @property
    def healthy(self) -> bool:
        """Tell whether what is handed over now would leave soon."""
        return self._publisher.healthy and self._database_problem is None

    def hand_over(self, rows: Sequence[OutboxRow]) -> None:
        """Publish these rows as soon as possible; call it after their commit.

        When too many wait already they are left to the sweep.
        """
        if len(self._waiting) + len(rows) > _MOST_WAITING:
            return
        now = time.monotonic()
        self._waiting.extend((row, now) for row in rows)
        self._arrived.set()

    def hurry(self) -> None:
        """Sweep now: a commit of this process has left rows that it cannot hand over."""
        self._hurried.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Relay until asked to stop; what was handed over before still leaves."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep(stop))
            for _ in range(self._lanes):
                group.create_task(self._lane(stop))
            await stop.wait()
            self._arrived.set()

    async def step(self) -> int:
        """Relay one batch of what nobody publishes; return how many left."""
        await self._delete_confirmed()
        try:
            await self._publisher.connect()
        except Unreachable:
            return 0  # the rows are safe where they are
        # After a doubtful publish one row is enough to find out.
        limit = self._batch if self._publisher.healthy else 1
        rows = await transact(self._engine, lambda connection: self._fetch(connection, limit))
        passing("relay.fetched")
        return await self._relay(rows) if rows else 0

    async def _sweep(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._hurried.clear()
            try:
                left = await self.step()
                self._database_problem = None
            except DATABASE_ERRORS as absent:
                self._database_problem, left = str(absent), 0
            if left < self._batch:
                spread = random.uniform(0.8, 1.2)  # noqa: S311 - no secret
                await first_of(self._hurried, stop, seconds=self._pause * spread)

    async def _lane(self, stop: asyncio.Event) -> None:
        """Relay whatever is ready now; while one lane waits for confirms, the other gathers."""
        while True:
            rows = self._take()
            if not rows:
                if stop.is_set():
                    return
                self._arrived.clear()
                await self._arrived.wait()
                continue
            passing("relay.fetched")
            try:
                await self._relay(rows)
            except DATABASE_ERRORS as absent:
                self._database_problem = str(absent)  # the sweep finds out when it is back

    def _take(self) -> list[OutboxRow]:
        rows: list[OutboxRow] = []
        now = time.monotonic()
        while self._waiting and len(rows) < self._batch:
            row, since = self._waiting.popleft()
            if now - since < _OURS_SECONDS:
                rows.append(_later(row, now - since))
        return rows

    async def _relay(self, rows: Sequence[OutboxRow]) -> int:
        started = time.monotonic()
        outcomes = await self._publish(rows)
        passing("relay.confirmed")
        self._tell(rows, outcomes, time.monotonic() - started)
        answers = list(zip(rows, outcomes, strict=True))
        confirmed = [row.id for row, outcome in answers if isinstance(outcome, Confirmed)]
        self._confirmed.update(confirmed)
        await self._delete_confirmed()
        passing("relay.deleted")
        await self._keep([answer for answer in answers if not isinstance(answer[1], Confirmed)])
        return len(confirmed)

    async def _publish(self, rows: Sequence[OutboxRow]) -> list[Published]:
        """Publish those that can be written; one that cannot must not keep the others."""
        written = [self._written(row) for row in rows]
        messages = [one for one in written if isinstance(one, Outgoing)]
        answers = iter(await self._publisher.publish(messages, sent=_published) if messages else ())
        return [one if isinstance(one, Offending) else next(answers) for one in written]

    def _written(self, row: OutboxRow) -> Outgoing | Offending:
        try:
            return self._outgoing(row)
        except (TypeError, ValueError) as unfit:  # a service's own rows are anybody's SQL
            return Offending(f"it cannot be written as an event: {unfit}")

    async def _fetch(self, connection: AsyncConnection, limit: int) -> list[OutboxRow]:
        found = await connection.exec_driver_sql(self._fetch_due, (limit, self._lock))
        records: Sequence[Sequence[Any]] = found.all()
        return sorted((OutboxRow(*record) for record in records), key=lambda row: row.id)

    async def _delete_confirmed(self) -> None:
        """Delete what is published; what the database does not take now stays remembered."""
        ids = sorted(self._confirmed)
        if ids:
            await transact(self._lines.single, lambda on: fetch(on, self._delete, (ids,)))
            self._confirmed.difference_update(ids)

    async def _keep(self, answers: Sequence[tuple[OutboxRow, Published]]) -> None:
        if not answers:
            return
        arguments = (
            [row.id for row, _ in answers],
            [_why(outcome)[:_LONGEST_ERROR] for _, outcome in answers],
            [isinstance(outcome, Unroutable | Offending) for _, outcome in answers],
        )
        await transact(self._engine, lambda on: on.exec_driver_sql(self._keep_back, arguments))

    def _outgoing(self, row: OutboxRow) -> Outgoing:
        exchange, routing_key = row.exchange, row.routing_key
        if row.pause_seconds is not None and row.pause_seconds > 0:
            exchange, routing_key = self._topology.delay_route(row.pause_seconds, routing_key)
        return Outgoing(
            exchange=exchange,
            routing_key=routing_key,
            body=encode(row),
            message_id=row.message_id,
            type=row.type,
            correlation_id=row.correlation_id,
            timestamp=row.created_at,
            priority=_on_the_broker(row.priority),
            headers=_hop(row),
            mandatory=row.mandatory,
            signed=row.attributes is not None,
            follows=row.hop or _at_once(row),
        )

    def _tell(
        self, rows: Sequence[OutboxRow], outcomes: Sequence[Published], seconds: float
    ) -> None:
        counts = Counter(type(outcome) for outcome in outcomes)
        relayed = BatchRelayed(
            confirmed=counts[Confirmed],
            unroutable=counts[Unroutable],
            offending=counts[Offending],
            not_ready=counts[NotReady],
            unknown=counts[Unknown],
            seconds=seconds,
        )
        self._listener(relayed)
        for row, outcome in zip(rows, outcomes, strict=True):
            match outcome:
                case Unroutable(why):
                    self._listener(RowParked(row, "unroutable", why))
                case Offending(why):
                    self._listener(RowParked(row, "offending", why))


def encode(row: OutboxRow) -> bytes:
    """Write the row as the event that goes over the wire."""
    envelope = Envelope(
        id=row.event_id or row.message_id,
        source=SOURCE,
        type=row.type,
        time=row.created_at,
        subject=None if row.job_id is None else str(row.job_id),
        dataschema=_schema(row.type),
        traceparent=row.traceparent,
        correlationid=row.correlation_id,
        data=row.data,
    )
    if row.attributes is not None:
        envelope = envelope.with_attributes(_attributes(row.attributes))
    elif row.tracestate is not None:
        envelope = envelope.with_attributes({tracestate.NAME: row.tracestate})
    return envelope.encode()


def _hop(row: OutboxRow) -> dict[str, str]:
    """Say in the headers where it belongs, until whoever publishes it says it nearer."""
    state = tracestate.beside(row.traceparent, row.tracestate)
    return tracestate.headers(row.traceparent, state)


def _attributes(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError(f"attributes: found {text[:40]}, expected an object")
    return found


@lru_cache(maxsize=1024)
def _schema(wire_type: str) -> str | None:
    contract = parse_wire_type(wire_type)
    return schema_uri(*contract) if contract else None


def unhurried() -> None:
    """Leave it to the next sweep."""


def _later(row: OutboxRow, waited: float) -> OutboxRow:
    """The row after it has waited here: so much less of its pause is left."""
    if row.pause_seconds is None:
        return row
    return replace(row, pause_seconds=row.pause_seconds - waited)


def _at_once(row: OutboxRow) -> str | None:
    """Give the context of what made the row, if that was just now: not of what follows hours later.

    The first wake-up of a job and an event belong to where they were made; who sends the later ones
    says where they belong, or nobody does.
    """
    return row.traceparent if row.mandatory and row.epoch in {None, 1} else None


def _on_the_broker(priority: int | None) -> int | None:
    """Only what is urgent says so: RabbitMQ 4.3 would deliver nothing below it before it is gone.

    What is low must come at last, so it is low in the choice of turns alone.
    """
    return priority if priority is not None and priority > _DEFAULT_PRIORITY else None


def _why(outcome: Published) -> str:
    return "" if isinstance(outcome, Confirmed) else outcome.why


def _published() -> None:
    passing("relay.published")


def _ignore(_: Fact) -> None:
    """Nobody listens."""
