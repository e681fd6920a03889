"""The producer's answers as OpenAPI tells them: shapes and examples."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

JOB_ID: Final = "019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55"


class Status(StrEnum):
    """The states of a job."""

    queued = "queued"
    running = "running"
    cancel_requested = "cancel_requested"
    succeeded = "succeeded"
    failed = "failed"
    canceled = "canceled"


class Shape(BaseModel):
    """What an answer looks like; answers are written by hand, so that numbers stay exact."""

    model_config = ConfigDict(alias_generator=to_camel, title=None)


class Error(Shape):
    """Why a job or an attempt failed."""

    error_class: str = Field(alias="class")
    code: str | None
    message: str | None
    retryable: bool | None = None


class Progress(Shape):
    """How far a job is."""

    total: int | None
    succeeded: int
    failed: int
    canceled: int
    running: int
    queued: int
    message: str | None


class JobSummary(Shape):
    """A job, without its result."""

    job_id: str = Field(examples=[JOB_ID])
    type: str
    version: int
    status: Status
    attempt: int = Field(description="number of the latest attempt; 0: none has begun")
    max_attempts: int
    progress: Progress | None
    not_before: datetime | None
    deadline: datetime | None
    cost_usd: str = Field(examples=["0.004217"])
    error: Error | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    labels: dict[str, str]
    subject: str | None
    submitted_by: str | None
    parked_reason: str | None
    waiting_for: str | None = Field(description="why it does not run yet, in words")
    parent_id: str | None = Field(description="the batch whose item it is")
    item_index: int | None
    removed: list[str] = Field(description="what has been kept for long enough already")
    erased_at: datetime | None = Field(description="since when it is without data")
    links: dict[str, str]


class Job(JobSummary):
    """A job."""

    result: Any = None


class Canceled(Shape):
    """What a cancel came to."""

    job_id: str = Field(examples=[JOB_ID])
    status: Status = Field(description="canceled, or cancel_requested until the work has stopped")
    status_url: str
    canceled: int = Field(description="jobs that had not begun, items of a batch included")
    requested: int = Field(description="jobs whose workers were asked to stop them")


class Retried(Shape):
    """What is repeated."""

    job_id: str = Field(examples=[JOB_ID])
    status: Status
    status_url: str
    retried: int = Field(description="jobs that go again, items of a batch counted each")
    refused: list[int] = Field(description="indexes of named items that had not failed")
    duplicate: bool = Field(description="an earlier request with this Idempotency-Key did it")


class Item(Shape):
    """An item of a batch, as it is now."""

    index: int = Field(description="its place in the batch, from 0")
    job_id: str = Field(examples=[JOB_ID])
    status: Status
    result: Any
    error: Error | None
    cost_usd: str
    attempts: int = Field(description="how often it was begun")


class Erased(Shape):
    """A job whose data is erased."""

    job_id: str
    erased_at: datetime
    items: int = Field(description="items of the batch that were erased with it")


class Attempt(Shape):
    """One execution of a job."""

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None = Field(
        description="succeeded, retry, failed, canceled, lost, released; null: it has not ended"
    )
    error: Error | None
    step: str | None
    pause_seconds: float | None
    cost_usd: str


class Step(Shape):
    """A checkpointed part of an attempt."""

    name: str
    attempt: int
    state: str
    started_at: datetime
    finished_at: datetime | None
    cost_usd: str
    tool: str | None
    revision: int


class LlmCall(Shape):
    """A recorded model call."""

    attempt: int
    step: str | None
    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: str | None
    price_source: str | None
    at: datetime


class TimelineEntry(Shape):
    """Something that happened to a job."""

    sequence: int
    at: datetime
    kind: str
    data: dict[str, Any]


class JobList(Shape):
    """A page of jobs."""

    items: list[JobSummary]
    next: str | None


class ItemList(Shape):
    """A page of a batch's items."""

    items: list[Item]
    next: str | None


class AttemptList(Shape):
    """A page of attempts."""

    items: list[Attempt]
    next: str | None


class StepList(Shape):
    """The steps of a job."""

    items: list[Step]
    next: str | None


class LlmCallList(Shape):
    """A page of model calls."""

    items: list[LlmCall]
    next: str | None


class Timeline(Shape):
    """A page of a timeline."""

    items: list[TimelineEntry]
    next: str | None


NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "The job is as `If-None-Match` says (after `wait` seconds)"}
}

EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "First `snapshot` (the job), then `state`, `progress`, `item`, `attempt`",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'event: state\ndata: {"status":"running","attempt":1}\nid: 42\n\n',
            }
        },
    },
    204: {"description": "The job is final and everything was sent: nothing will come"},
}

LABELS: Final[dict[str, Any]] = {
    "x-query-families": ["label."],
    "parameters": [
        {
            "name": "label.{name}",
            "in": "query",
            "description": "only jobs with this label; may be given for several labels",
            "schema": {"type": "string"},
        }
    ],
}
