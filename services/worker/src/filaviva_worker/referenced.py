"""Events whose content lies elsewhere: looked up before they are taken in.

Before: a delivery that names its content (`dataref`), unacknowledged.
After: the event goes on with its content in it; without it the delivery is rejected: its dead
letter says what is missing. May happen twice: looking up has no effect.
"""

import asyncio
from collections.abc import Callable

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import contents, events
from filaviva.broker.connection import Backoff
from filaviva.broker.consumer import Consumer, Delivery
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.events import Event
from filaviva.service import wait
from filaviva_contracts import Envelope, Undecodable
from filaviva_worker.facts import Facts, NotRun

log = structlog.get_logger("filaviva")


class Referenced:
    """Look contents up, each delivery in a task of its own: such events are few."""

    def __init__(
        self,
        engine: AsyncEngine,
        facts: Facts,
        go_on: Callable[[Event, Delivery, Consumer], None],
    ) -> None:
        self._engine = engine
        self._facts = facts
        self._go_on = go_on
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Give back what the database, being away, keeps us from looking up."""
        self._stopping.set()

    def take(self, envelope: Envelope, delivery: Delivery, consumer: Consumer) -> None:
        """Take a delivery over until its content is found, or is not."""
        task = asyncio.create_task(self._resolve(envelope, delivery, consumer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, envelope: Envelope, delivery: Delivery, consumer: Consumer) -> None:
        backoff = Backoff(first=0.1, most=5)
        while not self._stopping.is_set():
            try:
                event = await transact(self._engine, lambda c: _with_content(c, envelope))
            except DATABASE_ERRORS as away:
                log.warning("a content waits for the database", why=said(away))
                await wait(self._stopping, backoff.next())
                continue
            if event is None:
                self._facts.not_run(NotRun("content_missing"))
                consumer.reject(delivery)
            else:
                self._go_on(event, delivery, consumer)
            return
        consumer.hand_back(delivery)


async def _with_content(connection: AsyncConnection, envelope: Envelope) -> Event | None:
    found = await contents.resolved(connection, envelope)
    try:
        return None if found is None else events.read(found)
    except Undecodable:
        return None
