"""What happened in a worker, made into metrics and log lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import structlog

from filaviva import tracing
from filaviva.errors import UpcastFailed
from filaviva.operations.events import Taken
from filaviva.outcome import Canceled, Dead, Done, Outcome, Retry
from filaviva.telemetry.metrics import Metrics
from filaviva.tracing.told import Attempted
from filaviva_worker.claim import Claimed
from filaviva_worker.lately import Tally
from filaviva_worker.live import Ending

log = structlog.get_logger("filaviva")

_VIOLATIONS = ("invalid_input", "invalid_output")
_UPCAST_FAILED = UpcastFailed.__name__


@dataclass(frozen=True, slots=True)
class NotRun:
    """A fact: a delivery had no effect, and why."""

    cause: str


@dataclass(slots=True)
class Settled:
    """A fact: an outcome is recorded (`counted`), or void because the lease was lost.

    Of a canceled one: the last rung that it took to stop it, and how many seconds.
    """

    job: Claimed
    outcome: Outcome | Ending
    seconds: float
    counted: bool
    rung: str | None = None
    stopped_after: float | None = None
    spent: float = 0.0  # USD, by this attempt


class Ends(NamedTuple):
    """What the end of an attempt counts; of the job too, where that is its end."""

    attempts: Any
    took: Any
    finished: Any
    ended: Any
    cost: Any


class Facts:
    """Count what happened; a failure also gets its line."""

    def __init__(self, metrics: Metrics, tally: Tally | None = None) -> None:
        self._metrics = metrics
        self._tally = tally or Tally()
        # Looking a child up by its labels costs as much as counting: this is the hot path.
        self._child = lru_cache(maxsize=4096)(_child)
        self._wait = lru_cache(maxsize=4096)(metrics.queue_wait.labels)
        self._ends = lru_cache(maxsize=4096)(partial(_ends, metrics))

    def claimed(self, job: Claimed, *, read_as: int) -> None:
        """A job was claimed; it will be read as this version."""
        self._tally.started(job.type)
        self._wait(job.type).observe(max(0.0, job.waited), _trace(job))
        if job.paused:
            self._metrics.retry_lateness.observe(max(0.0, job.waited))
        if read_as != job.version:
            upcasts = self._metrics.contract_upcasts
            self._child(upcasts.labels, job.type, str(job.version), str(read_as)).inc()

    def not_run(self, fact: NotRun) -> None:
        """A delivery had no effect."""
        self._child(self._metrics.duplicates.labels, "worker", fact.cause).inc()

    def events_taken(self, taken: Taken) -> None:
        """Events became jobs, or were copies."""
        for job_type in taken.created.values():
            self._child(self._metrics.jobs_submitted.labels, job_type, "event", "accepted").inc()
        if taken.duplicates:
            self._child(self._metrics.duplicates.labels, "event", "duplicate").inc(taken.duplicates)

    def reissued(self, count: int) -> None:
        """Wake-ups were sent again: they came too early or found no slot."""
        self._metrics.wakeups_reissued.labels("no_slot").inc(count)

    def settled(self, facts: Sequence[Settled]) -> None:
        """Attempts were recorded."""
        for fact in facts:
            self._settled(fact)

    def _settled(self, fact: Settled) -> None:
        job = fact.job
        if not fact.counted:
            self._metrics.lease_lost.labels(job.type).inc()
            log.warning("outcome void: the lease was lost", **_named(job))
            return
        outcome, error_class, _ = words(fact.outcome)
        ends, trace = self._ends(job.type, outcome, error_class), _trace(job)
        self._tally.ended(job.type, outcome, fact.spent)
        ends.attempts.inc()
        ends.took.observe(fact.seconds, trace)
        if ends.finished is not None:
            ends.finished.inc()
            ends.ended.observe(job.age + fact.seconds, trace)
            ends.cost.observe(job.spent + fact.spent)
        if fact.spent:
            self._metrics.attempt_cost.labels(job.type, outcome).inc(fact.spent)
        if fact.rung is not None and fact.stopped_after is not None:
            self._metrics.cancel_seconds.labels(fact.rung).observe(fact.stopped_after)
        if isinstance(fact.outcome, Retry | Dead):
            _log_failure(job, fact.outcome)
            self._violation(job, fact.outcome)

    def _violation(self, job: Claimed, outcome: Retry | Dead) -> None:
        failure = outcome.failure
        if failure.error_class in _VIOLATIONS:
            reason = "upcast_failed" if failure.code == _UPCAST_FAILED else failure.error_class
            violations = self._metrics.contract_violations
            self._child(violations.labels, job.type, str(job.version), reason).inc()


def _ends(metrics: Metrics, kind: str, outcome: str, error_class: str) -> Ends:
    """Find what such an end counts."""
    final = outcome in ("succeeded", "canceled")
    return Ends(
        metrics.job_attempts.labels(kind, outcome, error_class),
        metrics.attempt_duration.labels(kind, outcome),
        metrics.jobs_finished.labels(kind, outcome) if final else None,
        metrics.end_to_end.labels(kind, outcome) if final else None,
        metrics.job_cost.labels(kind) if final else None,
    )


def words(outcome: object) -> tuple[str, str, str | None]:
    """Say an outcome in the words of metrics and spans: outcome, error class, error code."""
    match outcome:
        case Done():
            return "succeeded", "", None
        case Retry(failure=failure):
            return "retry", failure.error_class, failure.code
        case Dead(failure=failure):
            return "failed", failure.error_class, failure.code
        case Canceled():
            return "canceled", "canceled", None
        case _:
            return "released", "", None


def _log_failure(job: Claimed, outcome: Retry | Dead) -> None:
    log.warning(
        "attempt failed",
        **_named(job),
        outcome="retry" if isinstance(outcome, Retry) else "failed",
        error_class=outcome.failure.error_class,
        error_code=outcome.failure.code,
    )


def _named(job: Claimed) -> dict[str, Any]:
    """Name an attempt on a line that is written when it is over."""
    return {
        "job_id": str(job.id),
        "job_type": job.type,
        "attempt": job.attempt,
        "correlation_id": job.correlation_id,
        **(_trace(job) or {}),
    }


def _trace(job: Claimed) -> dict[str, str] | None:
    """Give the trace of an attempt, for exemplars; None if nobody traces it."""
    if tracing.spans is None:
        return None
    return tracing.spans.exemplar(
        Attempted(job_id=job.id, number=job.attempt, origin=job.traceparent)
    )


def _child(labels: Callable[..., Any], *values: str) -> Any:
    return labels(*values)
