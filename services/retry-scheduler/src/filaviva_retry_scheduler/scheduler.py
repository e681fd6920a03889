"""Decide what becomes of jobs whose attempt failed.

Before: the worker has committed the failure and holds the job for us for half a minute.
After: inbox, decision and outbox rows are one commit, and the messages are settled.
May happen twice: the inbox lets a message through once, and `decide` a fence.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID, uuid4

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import inbox, tracing
from filaviva.broker.connection import Backoff
from filaviva.broker.consumer import Delivery
from filaviva.broker.messages import Confirmed, Offending, Outgoing, Published
from filaviva.broker.topology import Topology
from filaviva.database.transaction import DATABASE_ERRORS, said, transact, unreachable
from filaviva.failpoints import passing
from filaviva.service import first_of, wait
from filaviva.turns import OPEN, Gate
from filaviva_retry_scheduler.announcer import Announcer
from filaviva_retry_scheduler.decide import Decided, decide
from filaviva_retry_scheduler.facts import Fact, RequestDropped, RequestUnreadable
from filaviva_retry_scheduler.request import Request, Unreadable, read

CONSUMER = "retry-scheduler"
_TOPOLOGY = Topology()
# For what the broker refuses as it is: a person has to look at it, as at a parked outbox row.
_PARKED_SECONDS = 60.0

log = structlog.get_logger("filaviva")


class Publishing(Protocol):
    """Return what became of each message, once that is known."""

    async def publish(self, messages: Sequence[Outgoing]) -> list[Published]: ...


class Scheduler:
    """Take whatever is ready, at most a batch, in one transaction."""

    def __init__(  # noqa: PLR0913 - what it works with, and its pace
        self,
        engine: AsyncEngine,
        announcer: Announcer,
        publisher: Publishing,
        *,
        settle: Callable[[Delivery], object],
        gate: Gate = OPEN,
        batch: int = 100,
        patience: float = 5.0,
        parked: float = _PARKED_SECONDS,
    ) -> None:
        self._engine = engine
        self._announcer = announcer
        self._publisher = publisher
        self._settle = settle
        self._gate = gate
        self._batch = batch
        self._patience = patience
        self._parked = parked
        self._backoff = Backoff(first=0.2, most=patience)
        self._waiting: deque[Delivery] = deque()
        self._some = asyncio.Event()
        self._session: object = None

    def receive(self, delivery: Delivery) -> None:
        """Take a delivery into our hands; it is settled after the commit, whenever that is."""
        passing("decide.received")
        if delivery.session is not self._session:
            # The earlier channel is lost: what came over it is delivered again over this one.
            self._session = delivery.session
            self._waiting.clear()
        self._put(delivery)

    async def run(self, stop: asyncio.Event) -> None:
        """Decide until stopped."""
        while not stop.is_set():
            await first_of(self._some, stop)
            try:
                await self.step()
                self._backoff.reset()
            except DATABASE_ERRORS as absent:
                # Nothing is requeued: what we hold waits here, unacknowledged.
                log.info("the database does not answer the scheduler", why=said(absent))
                await wait(stop, self._backoff.next())

    async def step(self) -> int:
        """Decide one batch; return how many deliveries it took on."""
        taken = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
        if not self._waiting:
            self._some.clear()
        arrivals = [read(delivery) for delivery in taken]
        for arrival in arrivals:
            if isinstance(arrival, Unreadable):
                await self._pass_on(arrival)
        await self._decide([arrival for arrival in arrivals if isinstance(arrival, Request)])
        return len(taken)

    def _put(self, *deliveries: Delivery) -> None:
        self._waiting.extend(deliveries)
        self._some.set()

    def _put_later(self, delivery: Delivery, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._put_again, delivery)

    def _put_again(self, delivery: Delivery) -> None:
        if delivery.session is self._session:  # otherwise it has been delivered again since
            self._put(delivery)

    async def _decide(self, requests: Sequence[Request]) -> None:
        if not requests:
            return
        try:
            await self._commit(requests)
        except DATABASE_ERRORS as refused:
            if unreachable(refused):
                self._put(*(request.delivery for request in requests))
                raise
            await self._one_by_one(deque(requests))

    async def _one_by_one(self, requests: deque[Request]) -> None:
        """One job that cannot be decided now must not keep the others."""
        while requests:
            try:
                await self._commit([requests[0]])
            except DATABASE_ERRORS as refused:
                if unreachable(refused):
                    self._put(*(request.delivery for request in requests))
                    raise
                log.warning("not decided yet", job_id=str(requests[0].job_id), why=said(refused))
                self._put_later(requests[0].delivery, self._patience)
            requests.popleft()

    async def _commit(self, requests: Sequence[Request]) -> None:
        decided = await transact(self._engine, lambda on: _effect(on, requests, self._gate))
        passing("decide.committed")
        self._announcer.announce(decided, {} if tracing.spans is None else _hops(requests))
        for request in requests:
            self._settle(request.delivery)

    async def _pass_on(self, arrival: Unreadable) -> None:
        """Send it to the dead letters as it came, and only then let go of it."""
        published = await self._published(_as_it_came(arrival.delivery))
        if isinstance(published, Confirmed):
            self._settle(arrival.delivery)
            self._announcer.state(RequestUnreadable(arrival.why))
            return
        log.warning("an unreadable message could not be passed on", why=published.why)
        offending = isinstance(published, Offending)
        self._put_later(arrival.delivery, self._parked if offending else self._patience)

    async def _published(self, message: Outgoing) -> Published:
        """Publish it, with nothing but its bytes if the broker does not take the rest of it."""
        (published,) = await self._publisher.publish([message])
        if isinstance(published, Offending):
            (published,) = await self._publisher.publish([_bare(message)])
        return published


async def _effect(connection: AsyncConnection, requests: Sequence[Request], gate: Gate) -> Decided:
    named = {request.message_id for request in requests if request.message_id}
    first = await inbox.enter(connection, CONSUMER, named)
    fresh = [r for r in requests if not r.message_id or r.message_id in first]
    wanted = [(request.job_id, request.fence) for request in fresh]
    decided = await decide(connection, wanted, gate=gate)
    passing("decide.before_commit")
    return replace(decided, facts=[*decided.facts, *_dropped(requests, fresh, decided)])


def _hops(requests: Sequence[Request]) -> dict[UUID, str]:
    """Give the spans in which these messages were published."""
    told = {request.job_id: request.delivery.headers.get("traceparent") for request in requests}
    return {job_id: hop for job_id, hop in told.items() if isinstance(hop, str)}


def _dropped(requests: Sequence[Request], fresh: Sequence[Request], decided: Decided) -> list[Fact]:
    repeated = len(requests) - len({r.message_id or id(r) for r in fresh})
    stale = len({request.job_id for request in fresh} - decided.jobs)
    return [*[RequestDropped("repeated")] * repeated, *[RequestDropped("stale")] * stale]


def _as_it_came(delivery: Delivery) -> Outgoing:
    # The broker's own headers would make it see a cycle and drop the message.
    headers = {name: value for name, value in delivery.headers.items() if not name.startswith("x-")}
    return Outgoing(
        exchange=_TOPOLOGY.dead,
        routing_key=_TOPOLOGY.retry_requests,
        body=delivery.body,
        message_id=delivery.message_id or str(uuid4()),
        type=delivery.type,
        content_type=delivery.content_type or "application/octet-stream",
        headers=headers,
    )


def _bare(message: Outgoing) -> Outgoing:
    return replace(message, type=None, content_type="application/octet-stream", headers={})
