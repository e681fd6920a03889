"""The spans of an attempt's steps and model calls, while somebody traces."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from filaviva_worker.calls import Call

if TYPE_CHECKING:  # it imports OpenTelemetry, which is an extra
    from filaviva.tracing.journey import Spans


class Untraced:
    """Nobody traces: nothing is kept."""

    def begin(self, name: str, tool: str | None) -> None:
        """A step begins."""

    def reused(self, name: str, tool: str | None) -> None:
        """A step is not run again: an earlier attempt has its output."""

    def within(self, _name: str) -> AbstractContextManager[None]:
        """Make what happens in the block part of the step."""
        return _OUTSIDE

    def end(self, name: str, state: str) -> None:
        """A step has ended."""

    def called(self, call: Call, step: str | None) -> None:
        """A model was called, in this step or in none."""


_OUTSIDE = nullcontext()
UNTRACED = Untraced()


class StepSpans(Untraced):
    """Tell OpenTelemetry, below the attempt's span."""

    def __init__(self, spans: "Spans") -> None:
        self._spans = spans
        self._open: dict[str, Any] = {}

    def begin(self, name: str, tool: str | None) -> None:
        self._open[name] = self._spans.step(name, tool)

    def reused(self, name: str, tool: str | None) -> None:
        self._spans.step(name, tool, reused=True).end()

    def within(self, name: str) -> AbstractContextManager[None]:
        return self._spans.within(self._open.get(name))

    def end(self, name: str, state: str) -> None:
        span = self._open.pop(name, None)
        if span is not None:
            self._spans.step_ended(span, state)

    def called(self, call: Call, step: str | None) -> None:
        self._spans.called(call, None if step is None else self._open.get(step))
