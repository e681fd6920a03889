"""What the API tells about jobs, as values; numbers keep every digit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

FINAL: Final = frozenset(("succeeded", "failed", "canceled"))


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job, an attempt or an item failed; `error_class` is one of a few, `code` any name."""

    error_class: str
    code: str | None
    message: str | None
    retryable: bool | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is; of a batch, how many items are where."""

    total: int | None
    succeeded: int
    failed: int
    canceled: int
    running: int
    queued: int
    message: str | None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as it was when it was asked for; `document` is all that was told."""

    id: str
    type: str
    version: int
    status: str
    attempt: int
    max_attempts: int
    cost_usd: Decimal
    progress: Progress | None
    error: JobError | None
    result: Any
    labels: Mapping[str, str]
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    document: Mapping[str, Any] = field(repr=False)

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.status in FINAL


@dataclass(frozen=True, slots=True)
class Item:
    """One job of a batch."""

    index: int
    job_id: str
    status: str
    result: Any
    error: JobError | None
    cost_usd: Decimal
    attempts: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job; `id` is where to read on. A snapshot has the whole job."""

    kind: str
    data: Mapping[str, Any]
    id: int | None

    @property
    def job(self) -> JobStatus | None:
        """Give the job that a snapshot shows."""
        return job_status(self.data) if self.kind == "snapshot" else None

    @property
    def final(self) -> bool:
        """Whether nothing follows it."""
        return self.kind in ("snapshot", "state") and self.data.get("status") in FINAL


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, and the cursor of those that follow (None: there are no more)."""

    jobs: Sequence[JobStatus]
    next: str | None


def job_status(told: Mapping[str, Any]) -> JobStatus:
    """Read a job; what a newer server tells besides stays in `document`."""
    return JobStatus(
        id=told["jobId"],
        type=told["type"],
        version=told["version"],
        status=told["status"],
        attempt=told["attempt"],
        max_attempts=told["maxAttempts"],
        cost_usd=Decimal(told["costUsd"]),
        progress=_progress(told.get("progress")),
        error=_error(told.get("error")),
        result=told.get("result"),
        labels=told.get("labels") or {},
        created_at=_moment(told.get("createdAt")),
        started_at=_moment(told.get("startedAt")),
        finished_at=_moment(told.get("finishedAt")),
        document=told,
    )


def item(told: Mapping[str, Any]) -> Item:
    """Read an item of a batch."""
    return Item(
        index=told["index"],
        job_id=told["jobId"],
        status=told["status"],
        result=told.get("result"),
        error=_error(told.get("error")),
        cost_usd=Decimal(told["costUsd"]),
        attempts=told["attempts"],
    )


def _progress(told: Mapping[str, Any] | None) -> Progress | None:
    if told is None:
        return None
    return Progress(
        total=told["total"],
        succeeded=told["succeeded"],
        failed=told["failed"],
        canceled=told["canceled"],
        running=told["running"],
        queued=told["queued"],
        message=told["message"],
    )


def _error(told: Mapping[str, Any] | None) -> JobError | None:
    if told is None:
        return None
    return JobError(told["class"], told.get("code"), told.get("message"), told.get("retryable"))


def _moment(told: str | None) -> datetime | None:
    return None if told is None else datetime.fromisoformat(told)
