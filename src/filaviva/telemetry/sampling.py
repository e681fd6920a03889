"""Which spans are kept: what OTEL_TRACES_SAMPLER says, for a job and all that becomes of it."""

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

_CHECKOUT = "connect"  # SQLAlchemy's word for taking a connection from its pool
_DROP = SamplingResult(Decision.DROP)


class Following(Sampler):
    """Ask the configured sampler, except where a trace follows another one.

    A sampler that follows parents follows the first link too: an attempt is kept exactly when the
    creation of its job was. And a call that nobody's work contains (a poll of the database) begins
    no trace.
    """

    def __init__(self, configured: Sampler) -> None:
        self._configured = configured
        self.follows = isinstance(configured, ParentBased)

    def should_sample(  # noqa: PLR0913, PLR0917 - the signature is OpenTelemetry's
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,  # noqa: ARG002 - the same
    ) -> SamplingResult:
        """Decide whether a span is recorded."""
        if kind is SpanKind.CLIENT and name == _CHECKOUT:
            return _DROP
        if not trace.get_current_span(parent_context).get_span_context().is_valid:
            if kind is SpanKind.CLIENT:
                return _DROP
            if links and self.follows:
                kept = links[0].context.trace_flags.sampled
                return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes) if kept else _DROP
        return self._configured.should_sample(
            parent_context, trace_id, name, kind, attributes, links
        )

    def get_description(self) -> str:
        """Name it."""
        return f"Following{{{self._configured.get_description()}}}"
