"""POST /v1/jobs as OpenAPI tells it: its body, its answer and every refusal."""

from typing import Any, Final

from filaviva.callbacks.urls import LONGEST
from filaviva.http.problems import MEDIA_TYPE, documented
from filaviva.operations.batch_request import MOST_ITEMS
from filaviva.operations.submission import MAX_ATTEMPTS, MAX_LABELS, PRIORITIES
from filaviva_producer.documents import JOB_ID

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
        "statusPageUrl": {
            "type": "string",
            "description": "for the end user, if links are set and the key may read",
        },
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
    address = f"/v1/jobs/{JOB_ID}"
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
                    "jobId": JOB_ID,
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
