"""One batch of messages on the wire: written at once, all confirms awaited together.

The client library's own publish takes three tasks' worth of work a message; writing a batch as one
piece with its bookkeeping done here takes a third of the time.
"""

import asyncio
import struct
from collections.abc import Sequence

from aiormq.abc import ChannelFrame
from aiormq.channel import Channel
from aiormq.exceptions import ChannelInvalidStateError, DeliveryError, PublishError
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.frame import marshal
from pamqp.header import ContentHeader

from filaviva.broker.messages import (
    CONFIRMED,
    NotReady,
    Offending,
    Outgoing,
    Published,
    Unknown,
    Unroutable,
)

_PERSISTENT = 2
# AMQP's short strings; what only mirrors the envelope is left out when it is longer.
_SHORT = 255


class Flight:
    """Messages with different message ids, between departure and confirm."""

    def __init__(self, channel: Channel, messages: Sequence[Outgoing], user: str) -> None:
        self._channel = channel
        self._messages = messages
        self._wire = [_encode(channel, message, user) for message in messages]
        loop = asyncio.get_running_loop()
        self._confirms: list[asyncio.Future[object]] = [loop.create_future() for _ in messages]

    async def depart(self) -> None:
        """Return when the bytes have left this process."""
        channel = self._channel
        # Held until the bytes are out: so the writer's queue has room for the next, who must not
        # wait for it after the check.
        async with channel.lock:
            if channel.connection.channels.get(channel.number) is not channel:
                # Between the broker's close and the library's own notice, whatever is written on
                # the channel would cost the whole connection.
                raise ChannelInvalidStateError("closed by the broker")
            departed = channel.create_future()
            payload = b"".join(self._registered())
            channel.write_queue.put_nowait(
                ChannelFrame(payload=payload, should_close=False, drain_future=departed)
            )
            await departed

    async def land(self, seconds: float) -> list[Published | None]:
        """Wait for the confirms; None for what a closed channel left open."""
        closing = self._channel.closing
        closing.add_done_callback(self._abandon)
        waiting = [confirm for confirm in self._confirms if not confirm.done()]
        late = (await asyncio.wait(waiting, timeout=seconds))[1] if waiting else set()
        closing.remove_done_callback(self._abandon)
        for message in self._messages:
            self._channel.message_id_delivery_tag.pop(message.message_id, None)
        unknown = Unknown(f"not confirmed within {seconds:.0f} s")
        return [unknown if confirm in late else _outcome(confirm) for confirm in self._confirms]

    def _registered(self) -> list[bytes]:
        """Give each message its delivery tag; what cannot be written gets none."""
        channel, parts = self._channel, []
        for message, confirm, wire in zip(self._messages, self._confirms, self._wire, strict=True):
            if isinstance(wire, Offending):
                confirm.set_result(wire)
                continue
            channel.delivery_tag += 1
            channel.confirmations[channel.delivery_tag] = confirm
            # The library finds a returned message's confirm by this.
            channel.message_id_delivery_tag[message.message_id] = channel.delivery_tag
            parts.append(wire)
        return parts

    def _abandon(self, _: object) -> None:
        for confirm in self._confirms:
            confirm.cancel()


def _outcome(confirm: "asyncio.Future[object]") -> Published | None:
    if confirm.cancelled():
        return None
    match confirm.exception():
        case None:
            result = confirm.result()
            return result if isinstance(result, Offending) else CONFIRMED
        case PublishError() as returned:
            return Unroutable(f"{returned.args[0]}: no queue is bound for {returned.args[1]!r}")
        case DeliveryError():
            return NotReady("refused by the queue (full?)")
        case other:
            return Unknown(str(other))


def _encode(channel: Channel, message: Outgoing, user: str) -> bytes | Offending:
    try:
        return _frames(channel, message, user)
    except (TypeError, ValueError, struct.error) as unfit:
        return Offending(f"does not fit into AMQP: {unfit}")


def _frames(channel: Channel, message: Outgoing, user: str) -> bytes:
    properties = commands.Basic.Properties(
        content_type=message.content_type,
        headers=dict(message.headers),
        delivery_mode=_PERSISTENT,
        priority=message.priority,
        correlation_id=_short(message.correlation_id),
        message_id=message.message_id,
        timestamp=message.timestamp,
        message_type=_short(message.type),
        user_id=user if message.signed else None,
    )
    publish = commands.Basic.Publish(
        exchange=message.exchange, routing_key=message.routing_key, mandatory=message.mandatory
    )
    size, most, body = len(message.body), channel.max_content_size, message.body
    header = ContentHeader(properties=properties, body_size=size)
    bodies = [ContentBody(body[start : start + most]) for start in range(0, size, most)]
    return b"".join(
        [
            marshal(publish, channel.number),
            marshal(header, channel.number),
            *(marshal(part, channel.number) for part in bodies),
        ]
    )


def _short(text: str | None) -> str | None:
    return text if text is None or len(text.encode()) <= _SHORT else None
