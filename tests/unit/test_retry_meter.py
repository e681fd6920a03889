"""The retry-scheduler's facts as public metrics."""

from uuid import UUID

import pytest

from filaviva.telemetry.metrics import Metrics
from filaviva_retry_scheduler.facts import (
    AttemptLost,
    CancelFenced,
    DeadLetterRepublished,
    Fact,
    JobEnded,
    JobRequeued,
    RequestDropped,
    WakeUpReissued,
)
from filaviva_retry_scheduler.meter import Meter

JOB = UUID(int=1)


@pytest.mark.parametrize(
    ("fact", "sample", "labels"),
    [
        (JobRequeued(JOB, "t", 1, 2.5), "retry_pause_seconds_count", {"type": "t"}),
        (
            JobEnded(JOB, "t", "failed", 3.0, "terminal"),
            "jobs_finished_total",
            {"type": "t", "state": "failed"},
        ),
        (
            JobEnded(JOB, "t", "canceled", 3.0),
            "job_end_to_end_seconds_count",
            {"type": "t", "state": "canceled"},
        ),
        (AttemptLost(JOB, "t"), "leases_expired_total", {"type": "t"}),
        (CancelFenced(JOB, 3.0), "cancel_seconds_count", {"rung": "fenced"}),
        (
            AttemptLost(JOB, "t"),
            "job_attempts_total",
            {"type": "t", "outcome": "lost", "error_class": "lost"},
        ),
        (WakeUpReissued(JOB, "lost"), "wakeups_reissued_total", {"cause": "lost"}),
        (DeadLetterRepublished(JOB, "t"), "wakeups_reissued_total", {"cause": "dead_letter"}),
        (
            RequestDropped("stale"),
            "duplicates_suppressed_total",
            {"consumer": "retry-scheduler", "cause": "stale"},
        ),
    ],
)
def test_every_fact_is_counted(fact: Fact, sample: str, labels: dict[str, str]) -> None:
    metrics = Metrics()

    Meter(metrics)(fact)

    assert metrics.registry.get_sample_value(f"filaviva_{sample}", labels) == 1
