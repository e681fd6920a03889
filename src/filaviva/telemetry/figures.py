"""Figures: gauges that are counted in the database, now and then, by one process for all.

Nobody else shows them: `max` over instances is the figure, whoever counts. What is older than the
patience is not shown any more, since a wrong figure is worse than none.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Values: TypeAlias = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """One gauge: its name without our prefix, what it means, its labels."""

    name: str
    text: str
    labels: tuple[str, ...] = ()

    def family(self, values: Values) -> GaugeMetricFamily:
        """Give it in the form that is exposed."""
        family = GaugeMetricFamily(f"filaviva_{self.name}", self.text, labels=self.labels)
        for labels, value in sorted(values.items()):
            family.add_metric(labels, value)
        return family


FIGURES: Final = (
    Figure("jobs", "Jobs that have not ended", ("type", "state")),
    Figure(
        "job_oldest_timestamp_seconds",
        "Since when the oldest of them is due, runs or is to stop; 0 if there is none",
        ("type", "state"),
    ),
    Figure("dead_letters_open", "Dead letters waiting for a person", ("type", "reason")),
    Figure(
        "dead_letter_oldest_timestamp_seconds",
        "Since when the oldest open dead letter waits; 0 if none does, snoozed ones left out",
        ("type",),
    ),
    Figure("replays_running", "Replays that have not ended"),
    Figure("outbox_pending", "Messages not yet confirmed"),
    Figure("outbox_parked", "Messages that the broker refuses, tried again each minute"),
    Figure(
        "outbox_oldest_timestamp_seconds",
        "Since when the oldest message waits that is not parked; 0 if none does",
    ),
    Figure("workers", "Worker processes by whether they are heard of", ("state",)),
    Figure("turns_waiting", "Jobs that wait for their turn", ("priority",)),
    Figure(
        "turns_oldest_timestamp_seconds",
        "Since when the first in line is due, 0 if nobody waits",
        ("priority",),
    ),
    Figure("turns_upcoming", "Jobs that will wait for their turn once their time has come"),
    Figure("table_rows", "Rows of our tables as PostgreSQL counts them", ("table", "state")),
    Figure("table_bytes", "Size of our tables with their indexes", ("table",)),
    Figure("database_connections", "Connections to the database", ("state",)),
    Figure(
        "database_transaction_oldest_timestamp_seconds",
        "When the oldest open transaction began: nothing newer is vacuumed; 0 if there is none",
    ),
    Figure("figures_timestamp_seconds", "When the figures were last counted"),
)


class Figures(Collector):
    """What was counted last, for as long as it may be shown."""

    def __init__(self, registry: CollectorRegistry, *, patience: float = 120) -> None:
        self._patience = patience
        self._values: Mapping[str, Values] = {}
        self._told_at = 0.0
        registry.register(self)

    def tell(self, values: Mapping[str, Values]) -> None:
        """Show these from now on, and nothing of what was shown before."""
        unknown = values.keys() - {figure.name for figure in FIGURES}
        if unknown:
            raise KeyError(f"found {sorted(unknown)}, expected names of FIGURES")
        self._values, self._told_at = values, time.monotonic()

    def forget(self) -> None:
        """Show nothing: somebody else counts."""
        self._values = {}

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name all of them, so that no other metric takes a name."""
        return (figure.family({}) for figure in FIGURES)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give those that were told lately."""
        if time.monotonic() - self._told_at > self._patience:
            return
        for figure in FIGURES:
            if figure.name in self._values:
                yield figure.family(self._values[figure.name])
