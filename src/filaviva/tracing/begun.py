"""Spans that have begun, with what may still be said of each."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from opentelemetry import context as current_context
from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from filaviva.tracing import contexts, destinations, names

_ERROR: Final = Status(StatusCode.ERROR)


class Creation:
    """The span in which a message is made; what becomes of it later links to it."""

    def __init__(self, span: Span, exchange: str) -> None:
        self._span = span
        self._exchange = exchange
        self.traceparent = contexts.write(span.get_span_context())
        self.tracestate = contexts.state(span.get_span_context())

    def tell(
        self,
        *,
        job_id: UUID,
        type: str,  # noqa: A002 - our word
        queue: str,
        jobs: int,
        duplicate: bool,
    ) -> None:
        """Say which job it is, once that is known."""
        destination = destinations.sent(self._exchange, queue)
        self._span.update_name(f"create {destination}")
        self._span.set_attributes(
            {
                **destinations.attributes("create", "create", destination, queue),
                names.JOB_ID: str(job_id),
                names.JOB_TYPE: type,
                names.DUPLICATE: duplicate,
            }
        )
        if jobs > 1:
            self._span.set_attribute(names.BATCH_COUNT, jobs)

    def failed(self, code: str) -> None:
        """Say under which name it was refused."""
        fail(self._span, code)


class Publishing:
    """The spans of messages on their way to the broker."""

    def __init__(self, spans: Mapping[int, Span]) -> None:
        self._spans = spans

    def traceparent(self, place: int) -> str | None:
        """Give what the header of this message says; None: what it says already."""
        span = self._spans.get(place)
        return None if span is None else contexts.write(span.get_span_context())

    def ended(self, outcomes: Sequence[str | None]) -> None:
        """Say what became of each: None is well, otherwise a name for what went wrong."""
        for place, span in self._spans.items():
            wrong = outcomes[place] if place < len(outcomes) else "Canceled"
            if wrong is not None:
                fail(span, wrong)
            span.end()


class Running:
    """The span of an attempt; `enter` in the task that runs it."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def enter(self) -> None:
        """Make what this task does part of the attempt."""
        current_context.attach(trace.set_span_in_context(self._span))

    def end(self, outcome: str, error_class: str = "", code: str | None = None) -> None:
        """Say what it came to."""
        self._span.set_attribute(names.OUTCOME, outcome)
        if error_class:
            self._span.set_attribute(names.ERROR_CLASS, error_class)
            fail(self._span, code or error_class)
        self._span.end()


def fail(span: Span, code: str) -> None:
    """Say under which name errors of this kind go; no text, it may hold what the job was about."""
    span.set_attribute(names.ERROR_TYPE, code)
    span.set_status(_ERROR)
