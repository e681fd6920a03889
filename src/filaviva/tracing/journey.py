"""Spans of the journey, made with OpenTelemetry.

An attempt begins a trace: what ran hours later must not keep the trace of the request open. Its
links lead to the creation of the job, to the attempt before, and to the message that woke it. What
follows an attempt at once (its failure sent, the decision, the dead letter) is part of its trace.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as current_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Tracer,
    TracerProvider,
)

from filaviva.tracing import contexts, destinations, names
from filaviva.tracing.begun import Creation, Publishing, Running, fail
from filaviva.tracing.ids import PlannedIds, attempt
from filaviva.tracing.told import Attempted, Decision, Letter, Returned

_FAILED = "attempt.failed"


class Spans:
    """What stations tell, made into spans."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._tracer: Tracer = trace.get_tracer(
            "filaviva",
            tracer_provider=provider,
            schema_url="https://opentelemetry.io/schemas/1.44.0",
        )
        self._sampler: Any = getattr(provider, "sampler", None)
        found = getattr(provider, "id_generator", None)
        # Then nobody has to be asked about an attempt: its job's creation has decided.
        self._follows: bool = getattr(self._sampler, "follows", False)
        self._ids = found if isinstance(found, PlannedIds) else None

    @contextmanager
    def creating(self, exchange: str) -> Iterator[Creation]:
        """Open the span of a message's creation, below what happens now."""
        span = self._tracer.start_span(f"create {exchange}", kind=SpanKind.PRODUCER)
        made = Creation(span, exchange)
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                yield made
            except BaseException as error:
                made.failed(getattr(error, "code", None) or type(error).__name__)
                raise
            finally:
                span.end()

    def current(self) -> str | None:
        """Give the context of what happens now as traceparent."""
        span = contexts.current()
        return None if span is None else contexts.write(span.get_span_context())

    def current_state(self) -> str | None:
        """Give what other systems have added to that context."""
        span = contexts.current()
        return None if span is None else contexts.state(span.get_span_context())

    def ids(self) -> dict[str, str]:
        """Give the ids of what happens now, as log lines have them."""
        span = contexts.current()
        if span is None:
            return {}
        found = span.get_span_context()
        return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}

    def exemplar(self, attempted: Attempted) -> dict[str, str] | None:
        """Give the exemplar of an attempt: its trace, if it is kept."""
        if not self._sampled(attempted):
            return None
        return {"trace_id": f"{attempt(attempted.job_id, attempted.number).trace:032x}"}

    def publishing(self, messages: Sequence[Any]) -> Publishing:
        """Begin the spans of the messages that are part of something recorded."""
        spans = {}
        for place, message in enumerate(messages):
            parent = contexts.read(message.follows)
            if parent is not None and parent.trace_flags.sampled:
                spans[place] = self._publish(message, parent)
        return Publishing(spans)

    def _publish(self, message: Any, parent: SpanContext) -> Span:
        destination = destinations.sent(message.exchange, message.routing_key)
        said = destinations.attributes("publish", "send", destination, message.routing_key)
        said[names.MESSAGE_ID] = message.message_id
        if message.correlation_id is not None:
            said[names.CONVERSATION_ID] = message.correlation_id
        return self._tracer.start_span(
            f"publish {destination}",
            contexts.below(parent),
            kind=SpanKind.CLIENT,
            attributes=said,
        )

    def attempt(self, job: Any, delivery: Any, queue: str) -> Running:
        """Begin the trace of an attempt that this delivery has brought."""
        attempted = Attempted(
            job_id=job.id, number=job.attempt, origin=job.traceparent, state=job.tracestate
        )
        if self._follows and not self._sampled(attempted):
            return Running(NonRecordingSpan(self._context(attempted)))
        destination = destinations.received(delivery.exchange, delivery.routing_key, queue)
        said = destinations.attributes("process", "process", destination, delivery.routing_key)
        said |= {
            names.DELIVERY_TAG: delivery.tag,
            names.CONVERSATION_ID: job.correlation_id,
            names.JOB_ID: str(job.id),
            names.JOB_TYPE: job.type,
            names.JOB_VERSION: job.version,
            names.ATTEMPT: job.attempt,
            names.TENANT: job.tenant,
            names.WAITED: max(0.0, job.waited),
        }
        if delivery.message_id is not None:
            said[names.MESSAGE_ID] = delivery.message_id
        span = self._root(
            f"process {destination}",
            SpanKind.CONSUMER,
            said,
            self._links(attempted, delivery.headers.get("traceparent")),
            attempted,
        )
        return Running(span)

    def step(self, name: str, tool: str | None, *, reused: bool = False) -> Span:
        """Begin the span of a step, below what happens now."""
        said: dict[str, Any] = {names.STEP: name}
        if tool is not None:
            said[names.STEP_TOOL] = tool
        if reused:
            said[names.STEP_STATE] = "reused"
        return self._tracer.start_span(f"step {name}", attributes=said)

    def step_ended(self, span: Span, state: str) -> None:
        """End the span of a step."""
        span.set_attribute(names.STEP_STATE, state)
        if state == "failed":
            fail(span, "failed")
        span.end()

    @contextmanager
    def within(self, span: Span | None) -> Iterator[None]:
        """Make what happens in the block part of this span."""
        if span is None:
            yield
            return
        token = current_context.attach(trace.set_span_in_context(span))
        try:
            yield
        finally:
            current_context.detach(token)

    def called(self, call: Any, step: Span | None) -> None:
        """Tell of a model call that was recorded: what it used, not how long it took."""
        told = call.input_tokens + call.cache_read_tokens + call.cache_write_tokens
        said: dict[str, Any] = {
            names.GEN_AI_OPERATION: "chat",
            names.GEN_AI_PROVIDER: call.provider,
            names.GEN_AI_MODEL: call.model,
            names.GEN_AI_INPUT: told,  # the conventions count cached ones in
            names.GEN_AI_OUTPUT: call.output_tokens,
            names.GEN_AI_CACHE_READ: call.cache_read_tokens,
            names.GEN_AI_CACHE_WRITE: call.cache_write_tokens,
        }
        if call.cost_usd is not None:
            said |= {names.COST: float(call.cost_usd), names.PRICE_SOURCE: call.price_source}
        above = None if step is None else trace.set_span_in_context(step)
        span = self._tracer.start_span(
            f"chat {call.model}", above, kind=SpanKind.CLIENT, attributes=said
        )
        span.end()

    def after(self, attempted: Attempted) -> str:
        """Give the context of an attempt, for the message that tells how it ended."""
        return contexts.write(self._context(attempted))

    def decided(self, decision: Decision, *, hop: str | None, queue: str, exchange: str) -> str:
        """Tell what was decided after an attempt; give the context for what follows."""
        sent, own = contexts.read(hop), self._context(decision.attempt)
        said: dict[str, Any] = {}
        name, kind = "decide", SpanKind.INTERNAL  # nobody said how it ended: its lease did
        if sent is not None:
            destination = destinations.received(exchange, _FAILED, queue)
            name, kind = f"process {destination}", SpanKind.CONSUMER
            said = destinations.attributes("process", "process", destination, _FAILED)
        span = self._tracer.start_span(
            name,
            contexts.below(sent if sent is not None and sent.trace_id == own.trace_id else own),
            kind=kind,
            attributes=said | _decision(decision),
            start_time=decision.since,
        )
        span.end()
        return contexts.write(span.get_span_context())

    def filed(self, letter: Letter) -> None:
        """Tell that a dead letter was filed: below the decision that it comes from."""
        destination = destinations.received(letter.exchange, letter.routing_key, letter.queue)
        said = destinations.attributes("process", "process", destination, letter.routing_key)
        said |= _known(
            {
                names.MESSAGE_ID: letter.message_id,
                names.REASON: letter.reason,
                names.JOB_ID: letter.job_id and str(letter.job_id),
                names.JOB_TYPE: letter.type,
                names.ATTEMPT: letter.attempt,
                names.ERROR_CLASS: letter.error_class,
                names.ERROR_TYPE: letter.error_code,
            }
        )
        sent = contexts.read(letter.hop)
        ours = sent if sent is not None and _in_trace_of(letter, sent) else None
        links = [] if sent is None or ours is not None else [_link(sent, "message")]
        span = self._tracer.start_span(
            f"process {destination}",
            contexts.below(ours),
            kind=SpanKind.CONSUMER,
            attributes=said,
            links=links,
            start_time=letter.since,
        )
        span.end()

    def returned(self, returned: Returned, exchange: str) -> str:
        """Tell that a job was sent back; give the context for what follows."""
        destination = destinations.sent(exchange, returned.queue)
        last = returned.attempt
        said = destinations.attributes(returned.cause, "create", destination, returned.queue)
        said |= {names.JOB_ID: str(last.job_id), names.JOB_TYPE: returned.type}
        links = self._links(
            Attempted(
                job_id=last.job_id, number=last.number + 1, origin=last.origin, state=last.state
            )
        )
        span = self._tracer.start_span(
            f"{returned.cause} {destination}", kind=SpanKind.PRODUCER, attributes=said, links=links
        )
        span.end()
        return contexts.write(span.get_span_context())

    def _root(
        self,
        name: str,
        kind: SpanKind,
        said: Mapping[str, Any],
        links: Sequence[Link],
        attempted: Attempted,
    ) -> Span:
        if self._ids is None:
            return self._tracer.start_span(name, Context(), kind=kind, attributes=said, links=links)
        self._ids.plan(attempt(attempted.job_id, attempted.number))
        try:
            return self._tracer.start_span(name, Context(), kind=kind, attributes=said, links=links)
        finally:
            self._ids.plan(None)

    def _links(self, attempted: Attempted, hop: object = None) -> list[Link]:
        """Link to the creation first: whether it is kept decides about the attempt, too."""
        links = []
        origin = contexts.read(attempted.origin, attempted.state)
        if origin is not None:
            links.append(_link(origin, "creation"))
        if attempted.number > 1 and self._ids is not None:
            before = Attempted(
                job_id=attempted.job_id, number=attempted.number - 1, origin=attempted.origin
            )
            links.append(_link(self._context(before), "previous attempt"))
        sent = contexts.read(hop)
        if sent is not None and sent != origin:
            links.append(_link(sent, "message"))
        return links

    def _context(self, attempted: Attempted) -> SpanContext:
        sampled = self._sampled(attempted)
        return contexts.of_attempt(attempted.job_id, attempted.number, sampled=sampled)

    def _sampled(self, attempted: Attempted) -> bool:
        """Tell whether an attempt is kept: as its job's creation, else as the first attempt."""
        origin = contexts.read(attempted.origin)
        if origin is not None:
            return origin.trace_flags.sampled
        if self._sampler is None:
            return True
        first = attempt(attempted.job_id, 1).trace
        found = self._sampler.should_sample(Context(), first, "process", SpanKind.CONSUMER)
        return bool(found.decision.is_sampled())


def _decision(decision: Decision) -> dict[str, Any]:
    not_before = decision.not_before
    return _known(
        {
            names.JOB_ID: str(decision.attempt.job_id),
            names.JOB_TYPE: decision.type,
            names.ATTEMPT: decision.attempt.number,
            names.OUTCOME: decision.state,
            names.PAUSE: decision.pause_seconds,
            names.NOT_BEFORE: None if not_before is None else not_before.isoformat(),
            names.REASON: decision.reason,
            names.ERROR_CLASS: decision.error_class,
        }
    )


def _in_trace_of(letter: Letter, sent: SpanContext) -> bool:
    """Tell whether the message was sent when the job's last attempt had been decided."""
    if letter.job_id is None or letter.attempt is None:
        return False
    return attempt(letter.job_id, letter.attempt).trace == sent.trace_id


def _known(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _link(to: SpanContext, what: str) -> Link:
    return Link(to, {names.LINK: what})
