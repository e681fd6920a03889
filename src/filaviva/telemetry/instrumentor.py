"""Instrumentation of Filaviva for processes that trace themselves: services that publish events.

`opentelemetry-instrument python shop.py` finds it, as every other; our own services do without.
"""

from collections.abc import Collection
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
    BaseInstrumentor,
)

from filaviva import tracing


class FilavivaInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Tell what Filaviva does to the process's tracer provider."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """Name what has to be installed: Filaviva itself is here."""
        return ()

    def _instrument(self, **options: Any) -> None:
        tracing.follow(options.get("tracer_provider") or trace.get_tracer_provider())

    def _uninstrument(self, **_: Any) -> None:
        tracing.forget()
