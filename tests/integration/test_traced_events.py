"""A service that is instrumented publishes events that say where they come from."""

import json

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan

from filaviva import Contract, tracing
from filaviva.broker.topology import Topology
from filaviva.event_publisher import Publisher
from filaviva.telemetry.instrumentor import FilavivaInstrumentor
from filaviva.tracing import contexts
from fixtures.amqp import channel, drained
from fixtures.spans import Kept, provider


class Issued(Contract, type="invoice.issued", version=1):
    """An event."""

    number: str


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


async def test_an_event_says_where_it_comes_from_and_its_message_by_which_hop(vhost: str) -> None:
    exporter = Kept()
    made = provider(exporter)
    remote = contexts.read(TOLD, STATE)
    assert remote is not None
    instrumentor = FilavivaInstrumentor()
    assert isinstance(instrumentor, BaseInstrumentor)
    instrumentor.instrument(tracer_provider=made)
    try:
        async with channel(vhost) as open_channel:
            exchange = Topology().events
            await open_channel.exchange_declare(exchange, exchange_type="topic", durable=True)
            await open_channel.queue_declare("events")
            await open_channel.queue_bind("events", exchange, "#")
        async with Publisher(vhost, source="/billing") as publisher:
            with made.get_tracer("shop").start_as_current_span("checkout"):
                await publisher.publish(Issued(number="17"))
            await publisher.publish(Issued(number="18"), traceparent=TOLD, tracestate=STATE)
            with trace.use_span(NonRecordingSpan(remote)):
                await publisher.publish(Issued(number="19"))
    finally:
        instrumentor.uninstrument()
    assert tracing.spans is None

    first, second, third = await drained(vhost, "events")
    (checkout,), (created, _) = exporter.named("checkout"), exporter.named("create filaviva.events")
    sent, sent_as_told, _ = exporter.named("publish filaviva.events:invoice.issued.v1")
    assert created.parent == checkout.get_span_context()
    assert sent.parent is not None
    assert sent.parent.span_id == created.get_span_context().span_id
    assert json.loads(first.body)["traceparent"] == traceparent(created)
    assert (first.header.properties.headers or {})["traceparent"] == traceparent(sent)
    assert json.loads(second.body)["traceparent"] == TOLD
    assert sent_as_told.parent is not None
    assert f"{sent_as_told.parent.trace_id:032x}" == TOLD[3:35]
    for message, state in ((first, None), (second, STATE), (third, STATE)):
        assert json.loads(message.body).get("tracestate") == state
        assert (message.header.properties.headers or {}).get("tracestate") == state


TOLD = f"00-{'a' * 32}-{'b' * 16}-01"
STATE = "rojo=00f067aa0ba902b7"
