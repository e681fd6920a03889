"""Metrics and log lines, made from facts."""

import structlog

from filaviva.telemetry.metrics import Metrics
from filaviva_retry_scheduler.facts import (
    AttemptLost,
    CancelFenced,
    DeadLetterRepublished,
    Fact,
    FiringsHeld,
    FiringsLeftOut,
    FiringsSkipped,
    JobEnded,
    JobRequeued,
    RequestDropped,
    RequestUnreadable,
    RowsRemoved,
    ScheduleBroken,
    ScheduleFired,
    TurnsGiven,
    WakeUpReissued,
)

CONSUMER = "retry-scheduler"

log = structlog.get_logger("filaviva")


class Meter:
    """Count what happened."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def __call__(self, fact: Fact) -> None:
        """Take note of one fact."""
        match fact:
            case JobRequeued(type=kind, pause_seconds=pause):
                self._metrics.retry_pause.labels(kind).observe(pause)
            case JobEnded():
                self._ended(fact)
            case AttemptLost() | CancelFenced():
                self._lost(fact)
            case WakeUpReissued() | DeadLetterRepublished() | TurnsGiven():
                self._issued(fact)
            case RequestDropped() | RequestUnreadable():
                self._request(fact)
            case RowsRemoved(what=what, count=count):
                self._metrics.rows_removed.labels(what).inc(count)
            case _:
                self._by_the_clock(fact)

    def _issued(self, fact: WakeUpReissued | DeadLetterRepublished | TurnsGiven) -> None:
        match fact:
            case WakeUpReissued(cause=cause):
                self._metrics.wakeups_reissued.labels(cause).inc()
            case DeadLetterRepublished(job_id=job):
                self._metrics.wakeups_reissued.labels("dead_letter").inc()
                log.warning("a dead letter was missing and is sent again", job_id=str(job))
            case TurnsGiven(priority=name, count=count):
                self._metrics.turns_given.labels(name).inc(count)

    def _request(self, fact: RequestDropped | RequestUnreadable) -> None:
        match fact:
            case RequestDropped(cause=cause):
                self._metrics.duplicates.labels(CONSUMER, cause).inc()
            case RequestUnreadable(why=why):
                log.warning("an unreadable message went to the dead letters", why=why)

    def _by_the_clock(
        self,
        fact: ScheduleFired | FiringsLeftOut | FiringsSkipped | FiringsHeld | ScheduleBroken,
    ) -> None:
        submitted = self._metrics.jobs_submitted
        match fact:
            case ScheduleFired(type=kind):
                submitted.labels(kind, "schedule", "accepted").inc()
            case FiringsLeftOut(schedule_id=schedule, type=kind, count=count):
                submitted.labels(kind, "schedule", "left_out").inc(count)
                log.warning("times of a schedule were missed", schedule=str(schedule), count=count)
            case FiringsSkipped(schedule_id=schedule, type=kind, count=count):
                submitted.labels(kind, "schedule", "skipped").inc(count)
                log.info("the job before has not ended", schedule=str(schedule), skipped=count)
            case FiringsHeld(schedule_id=schedule, type=kind, count=count, why=why):
                submitted.labels(kind, "schedule", "held").inc(count)
                log.info("firings wait", schedule=str(schedule), count=count, why=why)
            case ScheduleBroken(schedule_id=schedule, why=why):
                log.warning("a schedule cannot fire", schedule=str(schedule), why=why)

    def _ended(self, fact: JobEnded) -> None:
        self._metrics.jobs_finished.labels(fact.type, fact.state).inc()
        self._metrics.end_to_end.labels(fact.type, fact.state).observe(fact.seconds)
        self._metrics.job_cost.labels(fact.type).observe(fact.spent)
        log.info(
            "job ended",
            job_id=str(fact.job_id),
            type=fact.type,
            state=fact.state,
            reason=fact.reason,
        )

    def _lost(self, fact: AttemptLost | CancelFenced) -> None:
        if isinstance(fact, CancelFenced):
            self._metrics.cancel_seconds.labels("fenced").observe(fact.seconds)
            return
        self._metrics.leases_expired.labels(fact.type).inc()
        self._metrics.job_attempts.labels(fact.type, "lost", "lost").inc()
        self._metrics.attempt_cost.labels(fact.type, "lost").inc(fact.spent)
        log.warning("a worker stopped answering", job_id=str(fact.job_id), type=fact.type)
