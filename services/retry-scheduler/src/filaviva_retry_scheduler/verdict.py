"""What becomes of a job after an attempt that did not succeed: when, or enough."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias
from uuid import UUID

from filaviva import backoff
from filaviva.outcome import KEY_NOT_ALLOWED

# Losing a worker, or our database, says little about the job, so it has a limit of its own: the job
# that takes its workers down ends here, the innocent ones beside it do not.
LOST_LIMIT = 5
_LOST_BASE, _LOST_CAP, _LOST_JITTER = 1.0, 60.0, 1.0

Reason: TypeAlias = Literal[
    "terminal", "attempts_exhausted", "expired", "result_too_large", "forbidden"
]
# Failures that no repetition mends and that have a reason of their own, by their codes.
_OWN_REASONS: dict[str, Reason] = {
    "ResultTooLarge": "result_too_large",
    KEY_NOT_ALLOWED: "forbidden",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A job whose attempt has ended, as the database knows both."""

    job_id: UUID
    type: str
    version: int
    queue: str
    priority: int
    state: str
    epoch: int
    attempt: int
    failures: int
    losses: int
    max_attempts: int
    deadline: datetime | None
    correlation_id: str
    traceparent: str | None
    created_at: datetime
    outcome: str | None
    ended_at: datetime | None
    error_class: str | None
    error_code: str | None
    error_message: str | None
    retry_after: float | None
    base: float
    cap: float
    jitter: float
    now: datetime
    lifecycle: bool = False
    cancel_seconds: float | None = None  # since somebody asked it to stop
    spent: float = 0.0  # USD, by the job
    attempt_spent: float = 0.0  # USD, by this attempt

    @property
    def lost(self) -> bool:
        """The attempt is still open: whoever ran it cannot tell how it ended."""
        return self.ended_at is None

    @property
    def innocent(self) -> bool:
        """What ended the attempt says little about the job: its worker or our database was away."""
        return self.lost or self.error_class == "lost"

    @property
    def retryable(self) -> bool:
        """Repeating the work could help."""
        return self.outcome != "failed"


@dataclass(frozen=True, slots=True)
class Requeue:
    """Try again, not before this moment."""

    pause_seconds: float
    not_before: datetime


@dataclass(frozen=True, slots=True)
class Fail:
    """It is enough: a person has to look at it."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody asked for the end, and the work has stopped."""


Verdict: TypeAlias = Requeue | Fail | Cancel


def judge(case: Case) -> Verdict:
    """Decide what becomes of the job."""
    if case.state == "cancel_requested":
        return Cancel()
    if not case.retryable:
        return Fail(_OWN_REASONS.get(case.error_code or "", "terminal"))
    if _used_up(case):
        return Fail("attempts_exhausted")
    return _again(case)


def failures_after(case: Case) -> int:
    """Count the attempts of the present allowance, this one included if it counts."""
    return case.failures + (not case.innocent)


def losses_after(case: Case) -> int:
    """Count the lost attempts of the present allowance, this one included."""
    return case.losses + case.innocent


def _used_up(case: Case) -> bool:
    if case.innocent:
        return losses_after(case) >= LOST_LIMIT
    return failures_after(case) >= case.max_attempts


def _again(case: Case) -> Requeue | Fail:
    seconds = _pause(case)
    # The pause began when the attempt ended: time that the decision took is part of it.
    since = case.now if case.ended_at is None else min(case.ended_at, case.now)
    not_before = max(since + timedelta(seconds=seconds), case.now)
    if case.deadline is not None and not_before >= case.deadline:
        return Fail("expired")
    return Requeue(seconds, not_before)


def _pause(case: Case) -> float:
    if case.innocent:
        return backoff.pause(
            losses_after(case), base=_LOST_BASE, cap=_LOST_CAP, jitter=_LOST_JITTER
        )
    return backoff.pause(
        failures_after(case),
        base=case.base,
        cap=case.cap,
        jitter=case.jitter,
        retry_after=case.retry_after,
    )
