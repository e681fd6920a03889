"""Event intake: make jobs of the events that came to a work queue, a batch at a time.

Before: deliveries that are no wake-ups are held, unacknowledged.
After: each handler has its job and its wake-up is on its way; then the deliveries are acknowledged.
May happen twice: yes; each handler's inbox knows the event, whoever brings it again.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import events, failpoints
from filaviva.broker.connection import Backoff
from filaviva.broker.consumer import Consumer, Delivery
from filaviva.broker.topology import Topology
from filaviva.database.transaction import DATABASE_ERRORS, said, transact, transient
from filaviva.events import NOBODY, Event, Publishers
from filaviva.operations.events import Taken, take
from filaviva.relay import Relay
from filaviva.service import wait
from filaviva.uses import Uses
from filaviva_contracts.envelope import Envelope, Undecodable
from filaviva_worker.facts import Facts, NotRun
from filaviva_worker.referenced import Referenced

log = structlog.get_logger("filaviva")

BATCH = 100
# Setup binds a queue to an event before it publishes the handler.
PATIENCE = 5.0
_AGAIN = 0.5


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event that is not acknowledged yet."""

    event: Event
    delivery: Delivery
    consumer: Consumer
    since: float = field(default_factory=time.monotonic)


class EventIntake:
    """The events of one work queue, from the delivery to the acknowledgement."""

    def __init__(  # noqa: PLR0913 - its means
        self,
        queue: str,
        *,
        engine: AsyncEngine,
        relay: Relay,
        topology: Topology,
        facts: Facts,
        uses: Uses,
        publishers: Publishers = NOBODY,
    ) -> None:
        self._queue = queue
        self._engine = engine
        self._relay = relay
        self._exchange = topology.events
        self._facts = facts
        self._publishers = publishers
        self._uses = uses
        self._waiting: list[Arrived] = []
        self._turning: asyncio.Task[None] | None = None
        self._referenced = Referenced(engine, facts, self._admit)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Give back what the database, being away, keeps us from storing."""
        self._stopping.set()
        self._referenced.stop()

    def take(self, delivery: Delivery, consumer: Consumer) -> None:
        """Take a delivery over; what is no event goes to the dead letters."""
        found = read(delivery)
        if found is None:
            self._facts.not_run(NotRun("unreadable"))
            consumer.reject(delivery)
        elif isinstance(found, Envelope):
            self._referenced.take(found, delivery, consumer)
        else:
            self._admit(found, delivery, consumer)

    def _admit(self, event: Event, delivery: Delivery, consumer: Consumer) -> None:
        if not self._publishers.may_name(delivery.user, event.tenant):
            self._facts.not_run(NotRun("forbidden"))
            consumer.reject(delivery)
        else:
            self._wait(Arrived(event, delivery, consumer))

    def _wait(self, arrived: Arrived) -> None:
        self._waiting.append(arrived)
        if self._turning is None:
            self._turning = asyncio.create_task(self._turn())

    async def _turn(self) -> None:
        """Store whatever is there now; what comes meanwhile is the next batch."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._store(batch)
        finally:
            self._turning = None

    async def _store(self, batch: Sequence[Arrived]) -> None:
        try:
            taken = await self._taken([arrived.event for arrived in batch])
        except DBAPIError as refused:
            await self._apart(batch, refused)
            return
        if taken is None:
            for arrived in batch:
                arrived.consumer.hand_back(arrived.delivery)
            return
        failpoints.passing("event.committed")
        self._relay.hand_over(taken.rows)
        self._facts.events_taken(taken)
        for event in taken.first:
            self._uses.count(event.type, event.version, f"event:{event.source}")
        self._let_go(batch, taken)

    async def _taken(self, batch: Sequence[Event]) -> Taken | None:
        """Store them, again while the database is away; None when stopped meanwhile."""
        backoff = Backoff(first=0.1, most=5)
        while not self._stopping.is_set():
            try:
                return await transact(self._engine, lambda c: take(c, batch, queue=self._queue))
            except DATABASE_ERRORS as error:
                if not transient(error):
                    raise
                log.warning("events wait for the database", why=said(error))
            await wait(self._stopping, backoff.next())
        return None

    async def _apart(self, batch: Sequence[Arrived], refused: DBAPIError) -> None:
        """One of them cannot be stored (a number beyond all bounds): find it, keep the others."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._store(batch[:middle])
            await self._store(batch[middle:])
            return
        for arrived in batch:
            log.warning("an event cannot be stored", why=said(refused))
            self._facts.not_run(NotRun("unreadable"))
            arrived.consumer.reject(arrived.delivery)

    def _let_go(self, batch: Sequence[Arrived], taken: Taken) -> None:
        unknown, reused = set(taken.unknown), set(taken.reused)
        for arrived in batch:
            if arrived.event in unknown:
                self._unknown(arrived)
            elif arrived.event in reused:
                self._facts.not_run(NotRun("id_reused"))
                arrived.consumer.reject(arrived.delivery)
            else:
                arrived.consumer.settle(arrived.delivery)

    def _unknown(self, arrived: Arrived) -> None:
        late = time.monotonic() - arrived.since > PATIENCE
        if late or arrived.delivery.exchange != self._exchange or self._stopping.is_set():
            self._facts.not_run(NotRun("unknown_event"))
            arrived.consumer.reject(arrived.delivery)
        else:
            asyncio.get_running_loop().call_later(_AGAIN, self._wait, arrived)


def read(delivery: Delivery) -> Event | Envelope | None:
    """Read the event in a delivery; None if it is none, or one of our own that went astray.

    An Envelope names where its content lies.
    """
    if len(delivery.body) > events.LARGEST:
        return None
    try:
        envelope = Envelope.decode(delivery.body, delivery.content_type, delivery.headers)
        event = events.read(envelope, headers=delivery.headers)
    except Undecodable:
        return None
    if event.type.startswith("filaviva."):
        return None
    return event if envelope.dataref is None else envelope
