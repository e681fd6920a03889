"""Publish events straight to the broker, from any service that has AMQP and Python.

Before: an event. After: the broker has routed and confirmed it; it is as safe as the broker.
May happen twice: with the same id it is the same event to every handler.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, Self
from uuid import UUID

import uuid_utils

from filaviva import canonical, events, tracing
from filaviva import tracestate as tracestates
from filaviva.broker.messages import Confirmed, Outgoing
from filaviva.broker.publisher import Publisher as BrokerPublisher
from filaviva.broker.topology import Topology
from filaviva.errors import NotPublished
from filaviva_contracts import Contract, Envelope


class Contents(Protocol):
    """Whoever keeps what is too large for a message: a `filaviva.Client`."""

    async def put_content(self, content: Any) -> str:
        """Keep it; give the reference that leads to it."""
        ...


class Publisher:
    """`async with Publisher(url, source="/billing") as publisher: await publisher.publish(event)`.

    One for each process: it keeps its connection, and many tasks may publish at once. With
    `contents=Client(…)` what is too large for a message is put there first, and sent by reference.
    """

    def __init__(
        self,
        url: str,
        *,
        source: str,
        confirm_timeout: float = 10,
        contents: Contents | None = None,
    ) -> None:
        self._publisher = BrokerPublisher(url, confirm_timeout=confirm_timeout)
        self._source = source
        self._contents = contents
        self._exchange = Topology().events

    async def __aenter__(self) -> Self:
        await self._publisher.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._publisher.close()

    async def publish(  # noqa: PLR0913 - the attributes of an event
        self,
        event: Contract,
        *,
        id: str | UUID | None = None,  # noqa: A002 - CloudEvents' word
        subject: str | None = None,
        time: datetime | None = None,
        tenant: str | None = None,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> str:
        """Return the event's id once the broker has taken it over.

        NotPublished: nobody knows whether it has. Publish again under the id that the error names.
        """
        envelope = Envelope.of(
            event,
            id=str(id or uuid_utils.uuid7()),
            source=self._source,
            subject=subject,
            time=time or datetime.now(UTC),
            correlationid=correlation_id,
            extensions={} if tenant is None else {events.TENANT: tenant},
        )
        if traceparent is not None:
            return await self._publish(_traced(envelope, traceparent, tracestate))
        with tracing.creating(self._exchange) as made:
            return await self._publish(_traced(envelope, made.traceparent, made.tracestate))

    async def _publish(self, envelope: Envelope) -> str:
        traceparent, state = envelope.traceparent, envelope.extensions.get(tracestates.NAME)
        message = Outgoing(
            exchange=self._exchange,
            routing_key=envelope.type,
            body=await self._body(envelope),
            message_id=events.message_id(events.read(envelope)),
            type=envelope.type,
            correlation_id=envelope.correlationid,
            timestamp=envelope.time,
            headers=tracestates.headers(traceparent, state),
            signed=True,
            follows=traceparent,
        )
        (outcome,) = await self._publisher.publish([message])
        if not isinstance(outcome, Confirmed):
            raise NotPublished(f"{envelope.type}: {outcome.why}", event_id=envelope.id)
        return envelope.id

    async def _body(self, envelope: Envelope) -> bytes:
        body = envelope.encode()
        if len(body) <= events.LARGEST:
            return body
        if self._contents is None:
            raise ValueError(
                f"{envelope.type}: found {len(body)} bytes, expected at most {events.LARGEST}; "
                "larger data goes by reference: Publisher(…, contents=Client(…))"
            )
        dataref = await self._contents.put_content(canonical.parse(envelope.data))
        extensions = {**envelope.extensions, "dataref": dataref}
        return replace(envelope, data="null", extensions=extensions).encode()


def _traced(envelope: Envelope, traceparent: str | None, tracestate: str | None) -> Envelope:
    state = tracestates.beside(traceparent, tracestate)
    more = {} if state is None else {tracestates.NAME: state}
    return replace(envelope, traceparent=traceparent, extensions={**envelope.extensions, **more})
