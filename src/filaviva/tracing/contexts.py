"""Contexts of spans, written as W3C's traceparent and read again."""

import re
from typing import Final
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags, TraceState

from filaviva.tracing.ids import Ids, attempt

_TRACEPARENT: Final = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII
)
_NOWHERE: Final = Context()


def read(traceparent: object, tracestate: str | None = None) -> SpanContext | None:
    """Read a traceparent, with what came beside it; None if there is none, or it is broken."""
    found = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    beside = TraceState.from_header([tracestate]) if tracestate else None
    return SpanContext(
        trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags), trace_state=beside
    )


def write(context: SpanContext) -> str:
    """Write a context as traceparent."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def state(context: SpanContext) -> str | None:
    """Write what other systems have added to a context; None if they have not."""
    return context.trace_state.to_header() or None


def of_attempt(job_id: UUID, number: int, *, sampled: bool) -> SpanContext:
    """Give the context of an attempt's span, whoever runs it."""
    ids: Ids = attempt(job_id, number)
    flags = TraceFlags.RANDOM_TRACE_ID | (TraceFlags.SAMPLED if sampled else 0)
    return SpanContext(ids.trace, ids.span, is_remote=True, trace_flags=TraceFlags(flags))


def below(parent: SpanContext | None) -> Context:
    """Make the context of a span that follows this one, or begins a trace."""
    if parent is None:
        return _NOWHERE
    return trace.set_span_in_context(NonRecordingSpan(parent), _NOWHERE)


def current() -> Span | None:
    """Give the span of what happens now; None if there is none."""
    span = trace.get_current_span()
    return span if span.get_span_context().is_valid else None
