"""Traces of the journey: a job is followed from the request through every attempt and replay.

Who has something to tell asks `tracing.spans` first: None says that nobody traces, nothing is to be
done, and OpenTelemetry was never imported. Only `follow` sets it, once, before the work begins.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # OpenTelemetry is an extra, and takes as long to import as all of the SDK
    from filaviva.tracing.journey import Spans

spans: "Spans | None" = None


def follow(tracer_provider: Any) -> None:
    """Tell from now on what happens to this provider of OpenTelemetry."""
    global spans  # noqa: PLW0603 - as OpenTelemetry itself, one for a process
    from filaviva.tracing.journey import Spans  # noqa: PLC0415 - the extra `traces`

    spans = Spans(tracer_provider)


def forget() -> None:
    """Tell nothing any more."""
    global spans  # noqa: PLW0603 - as above
    spans = None


class Untraced:
    """A span while nobody traces: it takes what is told, and keeps nothing."""

    traceparent: str | None = None
    tracestate: str | None = None

    def tell(self, **_facts: Any) -> None:
        """Add facts to the span."""

    def failed(self, code: str) -> None:
        """Say that it did not come to its end, and under which name errors of this kind go."""


_UNTRACED = nullcontext(Untraced())


def creating(exchange: str) -> Any:
    """Open the span of a message's creation: `with creating(…) as made`, `made.traceparent`."""
    return _UNTRACED if spans is None else spans.creating(exchange)


def carried() -> str | None:
    """Give the context of what happens now, for a message that is about to be made."""
    return None if spans is None else spans.current()


def carried_state() -> str | None:
    """Give what other systems have added to that context."""
    return None if spans is None else spans.current_state()
