"""One attempt at consuming: a channel, the consumer on it, and what it holds."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from aiormq.abc import ChannelFrame, DeliveredMessage
from aiormq.channel import Channel
from pamqp import commands
from pamqp.frame import marshal

from filaviva.broker.connection import client_errors
from filaviva.broker.delivery import Delivery
from filaviva.broker.ledger import Ack, AckLedger, Settlement
from filaviva.errors import Unreachable


class Session:
    """The consumer of one queue on one channel; it never repairs itself."""

    def __init__(
        self,
        channel: Channel,
        queue: str,
        *,
        service: str,
        arguments: Mapping[str, Any],
        receive: Callable[[Delivery], None],
    ) -> None:
        self._channel = channel
        self._queue = queue
        self._service = service
        self._arguments = dict(arguments)
        self._receive = receive
        self._ledger = AckLedger()
        self._consumer_tag: str | None = None
        self._prefetch = 0
        self._last_tag = 0
        self._first_tag = 1  # of the present consumer
        self._quiet_since = time.monotonic()
        self._flushing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.canceled = asyncio.Event()
        channel.on_consumer_cancel_callbacks.add(self._on_cancel)

    @property
    def closing(self) -> "asyncio.Future[Any]":
        """Done when the channel is closed."""
        return self._channel.closing

    @property
    def channel(self) -> Channel:
        """The channel, for asking why it is closed."""
        return self._channel

    @property
    def alive(self) -> bool:
        """Tell whether the broker knows the channel, and the consumer if there should be one."""
        known = self._consumer_tag is None or self._consumer_tag in self._channel.consumers
        return known and self._usable

    @property
    def quiet_seconds(self) -> float:
        """How long no delivery has come although there is room for one; 0 when there is none."""
        held = self._ledger.open_since(self._first_tag)
        if self._consumer_tag is None or held >= self._prefetch:
            self._quiet_since = time.monotonic()
        return time.monotonic() - self._quiet_since

    async def consume(self, prefetch: int) -> None:
        """Begin to consume under a new tag."""
        # A tag of its own for each: 4.3 drops the connection when one is used again.
        tag = f"{self._service}-{uuid4().hex}"
        self._prefetch, self._first_tag = prefetch, self._last_tag + 1
        self._quiet_since = time.monotonic()
        await self._channel.basic_qos(prefetch_count=prefetch)
        await self._channel.basic_consume(
            self._queue, self._deliver, consumer_tag=tag, arguments=self._arguments
        )
        self._consumer_tag = tag

    async def cancel(self) -> None:
        """Take no more deliveries; what is held stays ours to settle."""
        tag, self._consumer_tag = self._consumer_tag, None
        if tag is not None and tag in self._channel.consumers:
            await self._channel.basic_cancel(tag)

    def settle(self, tag: int) -> bool:
        """Ack soon, together with what else is settled meanwhile."""
        return self._ledger.settle(tag) and self._tell_soon()

    def reject(self, tag: int, *, requeue: bool) -> bool:
        """Give back soon."""
        return self._ledger.reject(tag, requeue=requeue) and self._tell_soon()

    async def settled(self) -> None:
        """Return when everything delivered is settled and the broker has been told."""
        while self._ledger.unsettled and self._usable:
            self._changed.clear()
            await self._changed.wait()
        await self.flush()

    async def flush(self) -> None:
        """Return when the broker has been told of all that is settled."""
        self._tell_soon()
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    @property
    def _usable(self) -> bool:
        # The connection forgets a channel before the channel knows that it is closed; whatever is
        # written in between costs the whole connection.
        channel = self._channel
        known = channel.connection.channels.get(channel.number) is channel
        return known and not channel.is_closed

    async def _deliver(self, message: DeliveredMessage) -> None:
        frame, properties = message.delivery, message.header.properties
        if not isinstance(frame, commands.Basic.Deliver):
            return
        tag = frame.delivery_tag or 0
        self._last_tag, self._quiet_since = tag, time.monotonic()
        self._ledger.delivered(tag)
        self._receive(
            Delivery(
                body=message.body,
                content_type=properties.content_type,
                message_id=properties.message_id,
                type=properties.message_type,
                correlation_id=properties.correlation_id,
                headers=properties.headers or {},
                exchange=frame.exchange or "",
                routing_key=frame.routing_key or "",
                redelivered=bool(frame.redelivered),
                tag=tag,
                session=self,
                user=properties.user_id,
            )
        )

    def _on_cancel(self, frame: commands.Basic.Cancel | commands.Basic.CancelOk) -> None:
        if frame.consumer_tag == self._consumer_tag:
            self.canceled.set()

    def _tell_soon(self) -> bool:
        self._changed.set()
        if self._flushing is None and self._usable and self._ledger.dirty:
            # It starts after what runs now, so that a batch of settlements becomes one frame.
            self._flushing = asyncio.create_task(self._tell())
        return self._usable

    async def _tell(self) -> None:
        try:
            while self._ledger.dirty:
                with client_errors():
                    await self._write(self._ledger.take())
        except Unreachable:
            pass  # the tags died with the channel; the broker delivers again
        finally:
            self._flushing = None

    async def _write(self, settlements: list[Settlement]) -> None:
        channel = self._channel
        payload = b"".join(marshal(_frame(one), channel.number) for one in settlements)
        while channel.write_queue.full():
            await self._drained(b"")
        if self._usable:
            await self._drained(payload)

    async def _drained(self, payload: bytes) -> None:
        written = self._channel.create_future()
        frame = ChannelFrame(payload=payload, should_close=False, drain_future=written)
        if payload:
            self._channel.write_queue.put_nowait(frame)
        else:
            await self._channel.write_queue.put(frame)
        await written


def _frame(settlement: Settlement) -> commands.Basic.Ack | commands.Basic.Reject:
    if isinstance(settlement, Ack):
        return commands.Basic.Ack(delivery_tag=settlement.tag, multiple=settlement.multiple)
    # Never nack: with requeue it is not counted on 4.3 and goes on for ever.
    return commands.Basic.Reject(delivery_tag=settlement.tag, requeue=settlement.requeue)
