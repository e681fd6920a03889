"""Consume one queue for as long as the process lives, whatever happens to the broker.

Before: a message in a queue. After: it was given to `on_delivery` and is settled by its receiver.
May happen twice: yes; a lost channel hands back everything, and PostgreSQL decides what is due.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from filaviva.broker.connection import (
    LOST,
    Backoff,
    Connection,
    client_errors,
    close,
    closure,
    connect,
    open_channel,
)
from filaviva.broker.delivery import Delivery
from filaviva.broker.session import Session
from filaviva.broker.watchdog import Watchdog
from filaviva.errors import Unreachable

__all__ = ["Consumer", "Delivery"]

_PATIENCE_SECONDS = 10.0
_MILLISECONDS = timedelta(milliseconds=1)


class Consumer:
    """Our own supervisor: a new connection, channel and tag for every attempt.

    `on_delivery` is called in the event loop and must be quick. Jobs run elsewhere: a lost channel
    cancels none. `on_rebuilt` gets the cause: lost, closed, canceled or deaf.
    """

    def __init__(  # noqa: PLR0913 - each has its default
        self,
        url: str,
        queue: str,
        *,
        prefetch: int,
        on_delivery: Callable[[Delivery], None],
        service: str = "filaviva",
        consumer_timeout: timedelta | None = None,
        on_rebuilt: Callable[[str], None] | None = None,
        deaf_after: timedelta = timedelta(seconds=15),
        linger: timedelta = timedelta(seconds=30),
    ) -> None:
        self._url = url
        self._queue = queue
        self._prefetch = prefetch
        self._on_delivery = on_delivery
        self._service = service
        self._arguments = _arguments(consumer_timeout)
        self._on_rebuilt = on_rebuilt or _ignore
        self._deaf_after = deaf_after.total_seconds()
        self._linger = linger.total_seconds()
        self._session: Session | None = None
        self._changing = asyncio.Lock()
        self._stopping = False
        self._problem: str | None = "not attached yet"
        self._goodbyes: set[asyncio.Task[None]] = set()

    @property
    def attached(self) -> bool:
        """Tell whether the broker would deliver to us."""
        return self._session is not None and self._problem is None and self._session.alive

    def problems(self) -> list[str]:
        """Say why nothing would be delivered, for readiness."""
        if self.attached:
            return []
        return [f"queue {self._queue}: {self._problem or 'the consumer is gone'}"]

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until asked to stop, then wait a while for what is held to be settled."""
        stopped = asyncio.ensure_future(stop.wait())
        backoff = Backoff(first=0.2)
        cause: str | None = None
        while not stopped.done():
            try:
                cause = await self._attempt(stopped, cause, backoff)
            except Unreachable as unreachable:
                self._problem = str(unreachable)
            if not stopped.done():
                await asyncio.wait([stopped], timeout=backoff.next())
        await asyncio.gather(*self._goodbyes)

    def settle(self, delivery: Delivery) -> bool:
        """Ack it: its effect is committed. False if its channel is gone and it will come again."""
        return _session(delivery).settle(delivery.tag)

    def reject(self, delivery: Delivery) -> bool:
        """Give it to the dead letters."""
        return _session(delivery).reject(delivery.tag, requeue=False)

    def hand_back(self, delivery: Delivery) -> bool:
        """Give it back to the queue; the broker counts that towards its delivery limit."""
        return _session(delivery).reject(delivery.tag, requeue=True)

    async def resize(self, prefetch: int, *, settling: Iterable[Delivery] = ()) -> None:
        """Hold at most so many deliveries from now on; at 0 take none.

        `settling` is acked between the old and the new consumer: acked before, each would bring
        one more delivery under the old prefetch.
        """
        async with self._changing:
            self._prefetch = prefetch
            session = self._session
            try:
                if session is not None:
                    await _cancel(session)
                for delivery in settling:
                    self.settle(delivery)
                if session is not None:
                    await self._consume(session)
            except Unreachable as lost:
                # A channel that is only slow looks sound, but has no consumer any more: the
                # supervisor gives it up, and the next one begins with this prefetch.
                self._problem = str(lost)
                if session is not None:
                    session.canceled.set()

    async def _attempt(
        self, stopped: "asyncio.Future[Any]", cause: str | None, backoff: Backoff
    ) -> str | None:
        """Consume until something ends it; return what that was, None when we were stopped."""
        connection = await connect(self._url, name=f"{self._service} {self._queue}")
        try:
            session = await self._attach(connection)
            self._problem = None
            backoff.reset()
            if cause is not None:
                self._on_rebuilt(cause)
            cause = await self._watch(connection, session, stopped)
            if cause is None:
                await self._let_go(session)
            return cause
        finally:
            self._session = None
            self._problem = self._problem or "attaching again"
            self._part_from(connection)

    async def _attach(self, connection: Connection) -> Session:
        channel = await open_channel(connection, confirms=False)
        session = Session(
            channel,
            self._queue,
            service=self._service,
            arguments=self._arguments,
            receive=self._receive,
        )
        async with self._changing:
            self._session = session
            await self._consume(session)
        return session

    async def _consume(self, session: Session) -> None:
        with client_errors():
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await session.flush()
                if self._prefetch > 0 and not self._stopping:
                    await session.consume(self._prefetch)

    async def _watch(
        self, connection: Connection, session: Session, stopped: "asyncio.Future[Any]"
    ) -> str | None:
        """Return why the session must be given up, None when we were stopped."""
        watchdog = Watchdog(connection, self._queue, deaf_after=self._deaf_after)
        canceled = asyncio.ensure_future(session.canceled.wait())
        ends = (stopped, session.closing, canceled)
        try:
            while True:
                await asyncio.wait(
                    ends, timeout=watchdog.every_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if stopped.done():
                    return None
                if session.closing.done():
                    return "lost" if closure(session.channel).code == LOST else "closed"
                if canceled.done() or not session.alive:
                    return "canceled"
                if await watchdog.deaf(session):
                    return "deaf"
        except Unreachable:
            return "lost"
        finally:
            canceled.cancel()

    async def _let_go(self, session: Session) -> None:
        """Take nothing more, and wait until what is held is settled."""
        self._stopping = True
        async with self._changing:
            await _cancel(session)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._linger):
                await session.settled()

    def _receive(self, delivery: Delivery) -> None:
        if self._stopping:
            self.hand_back(delivery)
        else:
            self._on_delivery(delivery)

    def _part_from(self, connection: Connection) -> None:
        # In the background: a broker that does not answer must not hold up the next attempt.
        goodbye = asyncio.create_task(close(connection))
        self._goodbyes.add(goodbye)
        goodbye.add_done_callback(self._goodbyes.discard)


async def _cancel(session: Session) -> None:
    with client_errors():
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await session.cancel()


def _session(delivery: Delivery) -> Session:
    if not isinstance(delivery.session, Session):
        raise TypeError(f"found {delivery.session!r}, expected a delivery of a consumer")
    return delivery.session


def _arguments(consumer_timeout: timedelta | None) -> dict[str, int]:
    # 4.3 takes it from the consumer; older ones do not mind it and have it set elsewhere.
    if consumer_timeout is None:
        return {}
    return {"x-consumer-timeout": int(consumer_timeout / _MILLISECONDS)}


def _ignore(_: str) -> None:
    """Nobody counts."""
