"""/v1/schedules as OpenAPI tells it."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from filaviva.cron import MISSED, OVERLAPS
from filaviva.http import documented
from filaviva.operations.scheduling import JOB
from filaviva_producer.documents import Shape
from filaviva_producer.submission_documents import SUBMISSION


class ScheduleSummary(Shape):
    """A schedule, without its data."""

    schedule_id: str
    name: str
    cron: str = Field(examples=["30 8 * * MON-FRI"])
    time_zone: str = Field(examples=["America/Sao_Paulo"])
    missed: Literal["skip", "once", "all"]
    overlap: Literal["allow", "skip", "queue"]
    enabled: bool
    type: str
    version: int
    priority: Literal["high", "normal", "low"]
    max_attempts: int | None
    labels: dict[str, str]
    subject: str | None
    callback_url: str | None
    next_fire_at: datetime | None
    last_fired_at: datetime | None
    last_job_id: str | None
    fired: int = Field(description="jobs submitted by the calendar")
    skipped: int = Field(description="times at which the job before had not ended, under `skip`")
    last_skipped_at: datetime | None
    waiting: int = Field(description="times that wait for a limit, or for the job before to end")
    error: str | None = Field(description="why it could not fire the last time, or waits")
    submitted_by: str
    created_at: datetime
    updated_at: datetime
    links: dict[str, str]


class Schedule(ScheduleSummary):
    """A schedule."""

    data: Any = None
    items: list[Any] | None = Field(default=None, description="of a batch, instead of data")
    fail_fast: bool | None = None
    max_failures: int | None = None
    accept_partial: bool | None = None
    concurrency: int | None = None
    next_times: list[datetime] = Field(description="the next five, as the clocks will be then")


class ScheduleList(Shape):
    """A page of schedules."""

    items: list[ScheduleSummary]
    next: str | None


class FiredJob(Shape):
    """The job that a schedule submitted out of turn."""

    job_id: str
    status: str
    status_url: str
    duplicate: bool


_JOB: Final[dict[str, Any]] = {
    name: shape
    for name, shape in SUBMISSION["properties"].items()
    if name in JOB and name != "type"
}
_CALENDAR: Final[dict[str, Any]] = {
    "cron": {
        "type": "string",
        "maxLength": 100,
        "description": "minute, hour, day of month, month, day of week",
    },
    "timeZone": {"type": "string", "default": "UTC", "description": "an IANA name"},
    "missed": {
        "type": "string",
        "enum": list(MISSED),
        "default": "once",
        "description": "times that nobody fired: left out, made up for by one job, or by all",
    },
    "overlap": {
        "type": "string",
        "enum": list(OVERLAPS),
        "default": "allow",
        "description": "a time that comes while the job before has not ended: fired all the same, "
        "skipped, or fired after it",
    },
    "enabled": {"type": "boolean", "default": True},
}
_EXAMPLE: Final[dict[str, Any]] = {
    "name": "nightly-report",
    "cron": "30 2 * * *",
    "timeZone": "America/Sao_Paulo",
    "type": "report.build",
    "data": {"kind": "daily"},
}
_NEW: Final[dict[str, Any]] = {
    "title": "NewSchedule",
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "cron", "type"],
    "oneOf": [{"required": ["data"]}, {"required": ["items"]}],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 63},
        **_CALENDAR,
        "type": SUBMISSION["properties"]["type"],
        **_JOB,
    },
}
_CHANGES: Final[dict[str, Any]] = {
    "title": "ScheduleChange",
    "type": "object",
    "additionalProperties": False,
    "minProperties": 1,
    "properties": {**_CALENDAR, **_JOB},
}


def _body(schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


_READ: Final = (401, 403, 404, 422, 500, 503)
_WRITTEN: Final = (400, *_READ, 408, 413, 415)
_KEY: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "with the same key it is fired once",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
    ]
}

CREATE: Final[dict[str, Any]] = {
    "response_model": Schedule,
    "openapi_extra": _body(_NEW, _EXAMPLE),
    "responses": {
        200: {"description": "The same body had made it before", "model": Schedule},
        **documented(*(one for one in _WRITTEN if one != 404), 409),  # noqa: PLR2004
    },
}
LIST: Final[dict[str, Any]] = {
    "response_model": ScheduleList,
    "responses": documented(401, 403, 422, 500, 503),
}
ONE: Final[dict[str, Any]] = {"response_model": Schedule, "responses": documented(*_READ)}
CHANGE: Final[dict[str, Any]] = {
    "response_model": Schedule,
    "openapi_extra": _body(_CHANGES, {"cron": "0 4 * * *"}),
    "responses": documented(*_WRITTEN),
}
GONE: Final[dict[str, Any]] = {"response_model": None, "responses": documented(*_READ)}
FIRED: Final[dict[str, Any]] = {
    "response_model": FiredJob,
    "openapi_extra": _KEY,
    "responses": documented(400, *_READ),
}
