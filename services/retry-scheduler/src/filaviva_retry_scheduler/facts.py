"""What the retry-scheduler did: facts, in the past tense, stated after the commit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias
from uuid import UUID


@dataclass(frozen=True, slots=True)
class AttemptLost:
    """A lease ran out with its attempt still open, which had cost so much."""

    job_id: UUID
    type: str
    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class JobRequeued:
    """The job waits for its next attempt."""

    job_id: UUID
    type: str
    attempt: int
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is final; `reason` is why its dead letter is written."""

    job_id: UUID
    type: str
    state: Literal["failed", "canceled"]
    seconds: float
    reason: str | None = None
    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class CancelFenced:
    """A canceled job's worker was gone: its lease ran out, so long after the cancel."""

    job_id: UUID
    seconds: float


@dataclass(frozen=True, slots=True)
class WakeUpReissued:
    """A wake-up was issued again: the earlier one is lost, not wanted while parked, or astray."""

    job_id: UUID
    cause: Literal["lost", "unsupported_version", "queue_missing", "moved"]


@dataclass(frozen=True, slots=True)
class DeadLetterRepublished:
    """A failed job had no dead letter: its message was sent again."""

    job_id: UUID
    type: str


@dataclass(frozen=True, slots=True)
class RequestDropped:
    """A message had no effect: seen before, or its attempt was decided already."""

    cause: Literal["repeated", "stale"]


@dataclass(frozen=True, slots=True)
class RequestUnreadable:
    """A message is no failed attempt of ours: it went on to the dead letters as it came."""

    why: str


@dataclass(frozen=True, slots=True)
class ScheduleFired:
    """A schedule submitted a job, so long after its time."""

    schedule_id: UUID
    type: str
    late_seconds: float


@dataclass(frozen=True, slots=True)
class FiringsLeftOut:
    """Times of a schedule were missed and are not made up for: at least so many."""

    schedule_id: UUID
    type: str
    count: int


@dataclass(frozen=True, slots=True)
class FiringsSkipped:
    """Times of a schedule came while the job of the one before had not ended: no job for them."""

    schedule_id: UUID
    type: str
    count: int


@dataclass(frozen=True, slots=True)
class FiringsHeld:
    """Times of a schedule wait: for a limit, or for the job before to end."""

    schedule_id: UUID
    type: str
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class ScheduleBroken:
    """A schedule cannot submit its job."""

    schedule_id: UUID
    why: str


@dataclass(frozen=True, slots=True)
class TurnsGiven:
    """So many jobs of a class of priority have got their turn."""

    priority: str
    count: int


@dataclass(frozen=True, slots=True)
class RowsRemoved:
    """Something was older than it has to be kept."""

    what: str
    count: int


Fact: TypeAlias = (
    AttemptLost
    | JobRequeued
    | JobEnded
    | CancelFenced
    | WakeUpReissued
    | DeadLetterRepublished
    | RequestDropped
    | RequestUnreadable
    | ScheduleFired
    | FiringsLeftOut
    | FiringsSkipped
    | FiringsHeld
    | ScheduleBroken
    | RowsRemoved
    | TurnsGiven
)
Listener: TypeAlias = Callable[[Fact], None]


def unheard(_: Fact) -> None:
    """Listen to nothing."""
