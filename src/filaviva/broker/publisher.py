"""Publish: the promise is kept when the broker has routed and confirmed.

Before: a batch of messages. After: what became of each. May happen twice: an unknown outcome is
published again by the caller, with the same message id.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from filaviva import tracestate, tracing
from filaviva.broker.connection import (
    LOST,
    NOT_FOUND,
    PRECONDITION_FAILED,
    Backoff,
    Channel,
    Connection,
    client_errors,
    close,
    closure,
    connect,
    open_channel,
    user_of,
)
from filaviva.broker.flight import Flight
from filaviva.broker.messages import (
    Confirmed,
    NotReady,
    Offending,
    Outgoing,
    Published,
    Unknown,
)
from filaviva.errors import Unreachable

_SLOW_SECONDS = 2.0
_DOUBT_SECONDS = 60.0
_CLOSING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Session:
    connection: Connection
    channel: Channel

    @property
    def open(self) -> bool:
        return not self.channel.is_closed and not self.connection.is_closed


class Publisher:
    """One connection for all publishes of a process.

    Consumers have connections of their own: an alarm blocks this one, and acks must not wait.
    """

    def __init__(
        self, url: str, *, name: str = "filaviva publisher", confirm_timeout: float = 10.0
    ) -> None:
        self._url = url
        self._user = user_of(url)
        self._name = name
        self._timeout = confirm_timeout
        self._session: _Session | None = None
        self._opening = asyncio.Lock()
        self._backoff = Backoff()
        self._next_try = 0.0
        self._problem = "not connected yet"
        self._doubted_at: float | None = None
        self._departures: dict[object, float] = {}
        self._goodbyes: set[asyncio.Task[None]] = set()

    @property
    def healthy(self) -> bool:
        """Tell whether a publish would be confirmed soon, as far as we know."""
        return not self.problems()

    @property
    def connected(self) -> bool:
        """Tell whether there is a channel to publish on."""
        return self._session is not None and self._session.open

    def problems(self) -> list[str]:
        """Say what keeps messages from leaving, for readiness and back-pressure."""
        if not self.connected:
            return [f"broker: {self._problem}"]
        now = time.monotonic()
        waited = now - min(self._departures.values(), default=now)
        if waited > _SLOW_SECONDS:
            return [f"broker: a publish has waited {waited:.1f} s for its confirm (an alarm?)"]
        if self._doubted_at is not None and now - self._doubted_at < _DOUBT_SECONDS:
            return [f"broker: the last publish was not confirmed within {self._timeout:.0f} s"]
        return []

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until asked to stop, then close."""
        stopped = asyncio.ensure_future(stop.wait())
        while not stopped.done():
            try:
                session = await self._open()
            except Unreachable:
                pause = max(0.0, self._next_try - time.monotonic())
                await asyncio.wait([stopped], timeout=pause)
            else:
                lost = session.channel.closing
                await asyncio.wait([stopped, lost], return_when=asyncio.FIRST_COMPLETED)
        await self.close()

    async def connect(self) -> None:
        """Return when there is a channel to publish on; Unreachable when there is none."""
        await self._open()

    async def close(self) -> None:
        """Close the connection and wait until that is done."""
        if self._session is not None:
            self._discard(self._session.connection, "closed")
        await asyncio.gather(*self._goodbyes)

    async def publish(
        self, messages: Sequence[Outgoing], *, sent: Callable[[], None] | None = None
    ) -> list[Published]:
        """Publish all; return what became of each, in order.

        `sent` is called when the bytes have left, before the confirms. When one message makes the
        broker close the channel, the others go one by one and only the offender is refused.
        """
        if tracing.spans is None:
            return await self._publish(messages, sent)
        spans, outcomes = tracing.spans.publishing(messages), list[Published]()
        try:
            outcomes = await self._publish(
                [_within(spans.traceparent(i), message) for i, message in enumerate(messages)], sent
            )
        finally:
            spans.ended([_wrong(outcome) for outcome in outcomes])
        return outcomes

    async def _publish(
        self, messages: Sequence[Outgoing], sent: Callable[[], None] | None
    ) -> list[Published]:
        try:
            session = await self._open()
        except Unreachable as unreachable:
            return [Unknown(str(unreachable))] * len(messages)
        outcomes: dict[int, Published] = {}
        for some in _rounds(messages):
            outcomes |= await self._fly(session.channel, some, sent)
        left = {i: message for i, message in enumerate(messages) if i not in outcomes}
        if left:
            outcomes |= await self._one_by_one(session.connection, left)
        return [outcomes[index] for index in range(len(messages))]

    async def _fly(
        self,
        channel: Channel,
        messages: Mapping[int, Outgoing],
        sent: Callable[[], None] | None = None,
    ) -> dict[int, Published]:
        """Publish messages at once; those missing in the answer met a channel closed by one."""
        flight = Flight(channel, list(messages.values()), self._user)
        try:
            with self._departure(), client_errors():
                async with asyncio.timeout(self._timeout):
                    await flight.depart()
                if sent is not None:
                    sent()
                landed = await flight.land(self._timeout)
        except Unreachable as lost:
            landed, doubt = [None] * len(messages), Unknown(str(lost))
            # The broker's close may be on its way through the library.
            await asyncio.wait([channel.closing], timeout=_CLOSING_SECONDS)
        except BaseException:
            # What it has left on the channel is not known.
            self._discard(channel.connection, "a publish was broken off")
            raise
        else:
            doubt = Unknown("the connection to the broker was lost")
        self._judge(channel, landed)
        if channel.is_closed and closure(channel).code != LOST:
            return {i: done for i, done in zip(messages, landed, strict=True) if done is not None}
        return {i: done or doubt for i, done in zip(messages, landed, strict=True)}

    def _judge(self, channel: Channel, landed: Sequence[Published | None]) -> None:
        """Draw the conclusions for the connection and for our health."""
        if any(isinstance(outcome, Unknown) for outcome in landed):
            self._doubted_at = time.monotonic()
            self._discard(channel.connection, "a publish was not confirmed in time")
        elif None not in landed:
            self._doubted_at = None
        elif not channel.is_closed:
            self._discard(channel.connection, "a publish did not get through")

    async def _one_by_one(
        self, connection: Connection, messages: Mapping[int, Outgoing]
    ) -> dict[int, Published]:
        outcomes: dict[int, Published] = {}
        missing: dict[str, Published] = {}  # no need to lose a channel for each of their messages
        channel: Channel | None = None
        try:
            for index, message in messages.items():
                if message.exchange not in missing:
                    if channel is None or channel.is_closed:
                        channel = await open_channel(connection, confirms=True)
                    outcomes |= await self._alone(channel, index, message)
                    if channel.is_closed and closure(channel).code == NOT_FOUND:
                        missing[message.exchange] = outcomes[index]
                else:
                    outcomes[index] = missing[message.exchange]
        except Unreachable as lost:
            return dict.fromkeys(messages, Unknown(str(lost))) | outcomes
        if channel is not None:
            await close(channel)
        return outcomes

    async def _alone(self, channel: Channel, index: int, message: Outgoing) -> dict[int, Published]:
        """Publish one message on a channel of its own: what closes it now is this message."""
        outcome = await self._fly(channel, {index: message})
        if outcome:
            return outcome
        reason = closure(channel)
        refused = reason.code == PRECONDITION_FAILED
        return {index: Offending(reason.why) if refused else NotReady(reason.why)}

    async def _open(self) -> _Session:
        async with self._opening:
            if self._session is not None and self._session.open:
                return self._session
            if time.monotonic() < self._next_try:
                raise Unreachable(self._problem)
            try:
                self._session = await self._opened()
            except Unreachable as unreachable:
                self._problem = str(unreachable)
                self._next_try = time.monotonic() + self._backoff.next()
                raise
            self._backoff.reset()
            return self._session

    async def _opened(self) -> _Session:
        connection = None if self._session is None else self._session.connection
        if connection is None or connection.is_closed:
            connection = await connect(self._url, name=self._name)
        try:
            return _Session(connection, await open_channel(connection, confirms=True))
        except BaseException:
            self._part_from(connection)
            raise

    def _discard(self, connection: Connection, why: str) -> None:
        """Never publish on this connection again."""
        if self._session is not None and self._session.connection is connection:
            self._session = None
            self._problem = why
        self._part_from(connection)

    def _part_from(self, connection: Connection) -> None:
        # In the background: a broker that does not answer must not hold up the next try.
        goodbye = asyncio.create_task(close(connection))
        self._goodbyes.add(goodbye)
        goodbye.add_done_callback(self._goodbyes.discard)

    @contextmanager
    def _departure(self) -> Iterator[None]:
        ticket = object()
        self._departures[ticket] = time.monotonic()
        try:
            yield
        finally:
            del self._departures[ticket]


def _within(traceparent: str | None, message: Outgoing) -> Outgoing:
    """Have the message say in which span it was published."""
    if traceparent is None:
        return message
    return replace(message, headers=tracestate.within(message.headers, traceparent))


def _wrong(outcome: Published) -> str | None:
    return None if isinstance(outcome, Confirmed) else type(outcome).__name__


def _rounds(messages: Sequence[Outgoing]) -> Iterator[dict[int, Outgoing]]:
    """Split so that no id is twice in one round: returned messages are told apart by it."""
    left = dict(enumerate(messages))
    while left:
        firsts: dict[str, int] = {}
        for index, message in left.items():
            firsts.setdefault(message.message_id, index)
        yield {index: left.pop(index) for index in firsts.values()}
