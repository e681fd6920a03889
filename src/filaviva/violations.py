"""Contract violations: what did not fit, counted by reason wherever somebody finds it.

Only what is published becomes a label: whoever sends nonsense must not invent metrics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from filaviva.errors import Rejected
from filaviva.registry import Registry
from filaviva.telemetry.known import UNKNOWN
from filaviva.telemetry.metrics import Metrics

# Refusals at the edge that tell of a contract, not of a request.
_CODES: Final = frozenset({"invalid_data", "unknown_contract", "data_too_large"})


class Violations:
    """filaviva_contract_violations_total, with labels that the registry knows."""

    def __init__(self, metrics: Metrics, registry: Registry) -> None:
        self._counter = metrics.contract_violations
        self._registry = registry

    def known(self, kind: str) -> str:
        """Give a type as it may stand in a label."""
        return kind if self._registry.versions(kind) else UNKNOWN

    def count(self, kind: object, version: object, reason: str, times: int = 1) -> None:
        """Count messages that did not fit this version of a contract."""
        versions = self._registry.versions(kind) if isinstance(kind, str) else ()
        known = kind if versions else UNKNOWN
        if version is None and isinstance(kind, str):
            newest = self._registry.find(kind)
            version = newest and newest.version
        number = str(version) if version in versions else UNKNOWN
        self._counter.labels(known, number, reason).inc(times)

    @contextmanager
    def watched(self, kind: object, version: object = None) -> Iterator[None]:
        """Count what is refused inside because of its contract."""
        try:
            yield
        except Rejected as refused:
            if refused.code in _CODES:
                self.count(kind, version, refused.code)
            raise
