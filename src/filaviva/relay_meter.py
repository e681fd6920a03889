"""Metrics and log lines of what the relay says."""

import structlog

from filaviva.relay import BatchRelayed, Fact, RowParked
from filaviva.telemetry.known import CONFIRMS
from filaviva.telemetry.metrics import Metrics

log = structlog.get_logger("filaviva")


class Meter:
    """Turn the relay's facts into metrics; a parked row is told, for a person must look at it."""

    def __init__(self, metrics: Metrics) -> None:
        self._confirms = {one: metrics.publish_confirm.labels(one) for one in CONFIRMS}

    def __call__(self, fact: Fact) -> None:
        """Take in one fact."""
        match fact:
            case BatchRelayed():
                for outcome, confirm in self._confirms.items():
                    if getattr(fact, outcome):
                        confirm.observe(fact.seconds)
            case RowParked(row, kind, why):
                log.error("parked", kind=kind, message_id=row.message_id, why=why)
