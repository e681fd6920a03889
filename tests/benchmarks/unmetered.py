"""A worker that records no metric: what the others cost is measured against it.

Everything that records is taken out of this process from the outside; the product has no such
setting. Log lines stay: they are no metrics.
"""

from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from filaviva.relay_meter import Meter
from filaviva.telemetry.counter import LoopCounter
from filaviva.telemetry.histogram import LoopHistogram
from filaviva_worker import __main__ as worker
from filaviva_worker.facts import Facts


def nothing(*_: Any, **__: Any) -> None:
    """Record nothing."""


def silence() -> None:
    """Take out what records, and what only serves to record."""
    for kind, names in (
        (Counter, ("inc",)),
        (Gauge, ("inc", "dec", "set")),
        (Histogram, ("observe",)),
        (LoopCounter, ("inc",)),
        (LoopHistogram, ("observe",)),
    ):
        for name in names:
            setattr(kind, name, nothing)
    for facts in ("claimed", "not_run", "events_taken", "reissued", "settled"):
        setattr(Facts, facts, nothing)
    Meter.__call__ = nothing  # type: ignore[method-assign]


if __name__ == "__main__":
    silence()
    worker.main()
