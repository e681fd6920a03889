"""POST /v1/events as OpenAPI tells it."""

from typing import Any, Final

from filaviva.http.problems import documented

_JOB_ID: Final = "019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55"

_TEXT: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": 500}
_EVENT: Final[dict[str, Any]] = {
    "title": "Event",
    "type": "object",
    "required": ["type", "data"],
    "properties": {
        "type": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "`invoice.issued`, or with its version `invoice.issued.v1`",
        },
        "version": {"type": "integer", "minimum": 1, "description": "default: the newest"},
        "data": {"description": "as the contract's JSON Schema says"},
        "id": {**_TEXT, "description": "default: the Idempotency-Key"},
        "source": {**_TEXT, "description": "who says so; default: `/v1/events`"},
        "subject": _TEXT,
        "time": {"type": "string", "format": "date-time"},
        "correlationid": _TEXT,
        "traceparent": _TEXT,
        "tracestate": {"type": "string", "description": "beside `traceparent`; as W3C has it"},
        "datacontenttype": {"const": "application/json"},
        "dataschema": _TEXT,
        "specversion": {"const": "1.0", "description": "a CloudEvent: extensions are kept"},
    },
    "additionalProperties": {"type": ["string", "boolean", "integer"]},
}
_ACCEPTED: Final[dict[str, Any]] = {
    "title": "EventAccepted",
    "type": "object",
    "required": ["eventId", "source", "type", "version", "duplicate", "jobs"],
    "properties": {
        "eventId": {"type": "string"},
        "source": {"type": "string"},
        "type": {"type": "string"},
        "version": {"type": "integer"},
        "duplicate": {"type": "boolean", "description": "it had been kept before"},
        "jobs": {
            "type": "array",
            "description": "one for each handler",
            "items": {
                "type": "object",
                "required": ["jobId", "type", "status", "statusUrl", "duplicate"],
                "properties": {
                    "jobId": {"type": "string", "format": "uuid"},
                    "type": {"type": "string", "examples": ["invoice.issued:send_receipt"]},
                    "status": {"type": "string"},
                    "statusUrl": {"type": "string", "examples": [f"/v1/jobs/{_JOB_ID}"]},
                    "duplicate": {"type": "boolean"},
                },
            },
        },
    },
}

PUBLISH: Final[dict[str, Any]] = {
    "summary": "Publish an event",
    "responses": {
        202: {
            "description": "The event is kept",
            "content": {"application/json": {"schema": _ACCEPTED}},
        },
        **documented(400, 401, 403, 408, 413, 415, 422, 429, 500, 503),
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "the event's id, where the body names none",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            }
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _EVENT,
                    "example": {
                        "type": "invoice.issued",
                        "version": 1,
                        "id": "issued-17",
                        "source": "/billing",
                        "data": {"number": 17},
                    },
                }
            },
        },
    },
}
