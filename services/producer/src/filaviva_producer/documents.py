"""The producer's API as OpenAPI tells it: shapes, examples and every refusal."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from filaviva.callbacks.urls import LONGEST
from filaviva.http.problems import MEDIA_TYPE, documented
from filaviva.operations.batch_request import MOST_ITEMS
from filaviva.operations.submission import MAX_ATTEMPTS, MAX_LABELS, PRIORITIES

_JOB_ID = "019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55"


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

    job_id: str = Field(examples=[_JOB_ID])
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

    job_id: str = Field(examples=[_JOB_ID])
    status: Status = Field(description="canceled, or cancel_requested until the work has stopped")
    status_url: str
    canceled: int = Field(description="jobs that had not begun, items of a batch included")
    requested: int = Field(description="jobs whose workers were asked to stop them")


class Retried(Shape):
    """What is repeated."""

    job_id: str = Field(examples=[_JOB_ID])
    status: Status
    status_url: str
    retried: int = Field(description="jobs that go again, items of a batch counted each")
    refused: list[int] = Field(description="indexes of named items that had not failed")


class Item(Shape):
    """An item of a batch, as it is now."""

    index: int = Field(description="its place in the batch, from 0")
    job_id: str = Field(examples=[_JOB_ID])
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

SUBMISSION: Final[dict[str, Any]] = {
    "title": "Submission",
    "type": "object",
    "additionalProperties": False,
    "required": ["type"],
    "oneOf": [{"required": ["data"]}, {"required": ["items"]}],
    "properties": {
        "type": {"type": "string", "minLength": 1, "maxLength": 200},
        "version": {"type": "integer", "minimum": 1, "description": "default: the newest"},
        "data": {"description": "as the contract's JSON Schema says"},
        "items": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_ITEMS,
            "items": {"description": "the data of one job"},
            "description": "instead of data: a batch, whose items are jobs of their own",
        },
        "failFast": {
            "type": "boolean",
            "default": False,
            "description": "the first item that fails stops the others",
        },
        "maxFailures": {
            "type": "integer",
            "minimum": 0,
            "maximum": MOST_ITEMS,
            "description": "one more failed item stops the others",
        },
        "acceptPartial": {
            "type": "boolean",
            "description": "whether the batch succeeds though items failed, if any succeeded; "
            "default: unless these were too many",
        },
        "concurrency": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_ITEMS,
            "description": "how many items are on their way at once",
        },
        "priority": {"type": "string", "enum": list(PRIORITIES), "default": "normal"},
        "runAt": {"type": "string", "format": "date-time"},
        "deadline": {
            "type": "string",
            "format": "date-time",
            "description": "a job that has not begun by then fails",
        },
        "maxAttempts": {"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS},
        "labels": {
            "type": "object",
            "maxProperties": MAX_LABELS,
            "additionalProperties": {"type": "string", "maxLength": 256},
        },
        "subject": {
            "type": "string",
            "minLength": 1,
            "maxLength": 256,
            "description": "the end user on whose behalf this is done",
        },
        "callbackUrl": {
            "type": "string",
            "format": "uri",
            "maxLength": LONGEST,
            "description": "told by a signed POST (Standard Webhooks) once the job is final",
        },
    },
}

_ACCEPTED: Final[dict[str, Any]] = {
    "title": "Accepted",
    "type": "object",
    "required": ["jobId", "status", "statusUrl", "eventsUrl", "cancelUrl", "duplicate"],
    "properties": {
        "jobId": {"type": "string", "format": "uuid"},
        "status": {"$ref": "#/components/schemas/Status"},
        "statusUrl": {"type": "string"},
        "eventsUrl": {"type": "string"},
        "cancelUrl": {"type": "string"},
        "statusPageUrl": {"type": "string", "description": "for the end user, if links are set"},
        "duplicate": {"type": "boolean", "description": "it had been kept before"},
    },
}

_CODES: Final[dict[int, dict[str, str]]] = {
    400: {
        "idempotency_key_missing": "the header Idempotency-Key is missing: choose one per job",
        "idempotency_key_invalid": "Idempotency-Key: found 300 characters, expected 1 to 255",
        "malformed_json": "The body cannot be read: it is not JSON",
    },
    401: {"unauthenticated": "the API key is unknown, revoked or expired"},
    403: {"forbidden": "the API key lacks the scope jobs:write"},
    408: {"too_slow": "the body did not arrive within 60 s"},
    413: {
        "body_too_large": "the body is larger than 16777216 bytes",
        "data_too_large": "found 300000 bytes of data, expected at most 262144",
    },
    415: {"unsupported_media_type": "found content type 'text/plain', expected application/json"},
    422: {
        "invalid_request": "/maxAttempts: found 0, expected a whole number from 1 to 100",
        "unknown_contract": "there is no type 'invoice.red', there is: invoice.extract",
        "invalid_data": "data does not fit invoice.extract v2: /data/documentUrl: it is missing",
        "idempotency_key_reused": "this Idempotency-Key belongs to a job with other content",
    },
    429: {
        "rate_limited": "tenant acme may submit 60 jobs a minute",
        "too_many_queued": "tenant acme may have 1000 jobs waiting: come again when some end",
    },
    500: {"internal_error": "something failed on our side; the request's id leads us to it"},
    503: {
        "unavailable": "the database does not answer; submit again with the same Idempotency-Key",
        "overloaded": "100000 messages wait for the broker; new jobs are accepted again soon",
    },
}


def describe(api: dict[str, Any]) -> None:
    """Add POST /v1/jobs to an OpenAPI document; its route is a plain one."""
    api["components"]["schemas"] |= {
        "Submission": SUBMISSION,
        "Accepted": _ACCEPTED,
    }
    api["paths"].setdefault("/v1/jobs", {})["post"] = {
        "tags": ["jobs"],
        "operationId": "submitJob",
        "summary": "Submit a job",
        "description": "Once accepted, the job is kept and reaches a final state.",
        "security": [{"apiKey": []}],
        "parameters": [_KEY],
        "requestBody": {"required": True, "content": {"application/json": _BODY}},
        "responses": {"202": _answer(), **_refusals()},
    }


_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "description": "the same key and content are the same job, for as long as the job is kept",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_BODY: Final[dict[str, Any]] = {
    "schema": {"$ref": "#/components/schemas/Submission"},
    "example": {
        "type": "invoice.extract",
        "data": {"documentUrl": "https://example.com/invoice.pdf"},
        "labels": {"batch": "november"},
    },
}


def _answer() -> dict[str, Any]:
    address = f"/v1/jobs/{_JOB_ID}"
    return {
        "description": "The job is kept",
        "headers": {
            "Location": {"schema": {"type": "string"}},
            "Retry-After": {"schema": {"type": "integer"}},
            "Idempotent-Replayed": {
                "description": "`true` for a duplicate",
                "schema": {"type": "string"},
            },
        },
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Accepted"},
                "example": {
                    "jobId": _JOB_ID,
                    "status": "queued",
                    "statusUrl": address,
                    "eventsUrl": f"{address}/events",
                    "cancelUrl": f"{address}/cancel",
                    "duplicate": False,
                },
            }
        },
    }


def _refusals() -> dict[str, Any]:
    refusals = {}
    for status, described in documented(*_CODES).items():
        content = described["content"][MEDIA_TYPE]
        example = content.pop("example")
        content["examples"] = {
            code: {
                "value": {
                    **example,
                    "type": f"urn:filaviva:problem:{code}",
                    "code": code,
                    "detail": detail,
                }
            }
            for code, detail in _CODES[int(status)].items()
        }
        refusals[str(status)] = described
    return refusals
