"""What a scraper is told: all metrics of the process, in the format that it asks for.

Writing them takes the event loop some milliseconds, with many types some hundred. Whoever asks
often, or for whom many ask at once, gets what was written lately: nine tenths of the loop's time
are for the work.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

_OPEN: Final = "application/openmetrics-text"
_OTHERS: Final = 9


@dataclass(frozen=True, slots=True)
class Written:
    """Metrics as they were, and until when they are given again."""

    kind: bytes
    body: bytes
    until: float


class Exposing:
    """Write a registry; exemplars are told in OpenMetrics only."""

    def __init__(
        self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._written: dict[bool, Written] = {}

    def __call__(self, accept: str) -> Written:
        """Give them for a scraper that accepts this."""
        # Whatever else stands there: every scraper reads one of the two.
        is_open = _OPEN in accept
        kept = self._written.get(is_open)
        if kept is None or self._clock() >= kept.until:
            kept = self._written[is_open] = self._write(is_open=is_open)
        return kept

    def _write(self, *, is_open: bool) -> Written:
        began = self._clock()
        if is_open:
            kind = openmetrics.CONTENT_TYPE_LATEST
            body = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        else:
            kind = exposition.CONTENT_TYPE_PLAIN_0_0_4
            body = exposition.generate_latest(self._registry)
        now = self._clock()
        return Written(kind.encode(), body, now + _OTHERS * (now - began))
