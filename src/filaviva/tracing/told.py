"""What stations tell of a job, in words that need no OpenTelemetry."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """An attempt of a job: which trace it is in follows from these."""

    job_id: UUID
    number: int
    origin: str | None  # the traceparent that the job was submitted under
    state: str | None = None  # and the tracestate, for who links to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided after an attempt."""

    attempt: Attempted
    type: str
    state: str
    since: int  # nanoseconds since 1970
    pause_seconds: float | None = None
    not_before: datetime | None = None
    reason: str | None = None
    error_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter that was filed."""

    message_id: str | None
    exchange: str
    routing_key: str
    queue: str
    hop: str | None
    since: int
    reason: str
    type: str | None = None
    job_id: UUID | None = None
    attempt: int | None = None
    error_class: str | None = None
    error_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A job that was sent back: by a replay, or a retry that somebody asked for."""

    attempt: Attempted  # the last one
    type: str
    queue: str
    cause: str
