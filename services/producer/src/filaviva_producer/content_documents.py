"""/v1/contents as OpenAPI tells it."""

from typing import Any, Final

from filaviva.http.problems import documented

_NAME: Final = f"sha256-{'0f' * 32}"
_KEPT: Final[dict[str, Any]] = {
    "title": "Content",
    "type": "object",
    "required": ["dataref", "size", "tenant"],
    "properties": {
        "dataref": {"type": "string", "examples": [f"/v1/contents/{_NAME}"]},
        "size": {"type": "integer", "description": "bytes"},
        "tenant": {
            "type": "string",
            "description": "whose it is: only events of this tenant find it",
        },
    },
}

PUT: Final[dict[str, Any]] = {
    "summary": "Put data that is too large for a message",
    "responses": {
        201: {
            "description": "It is kept; the same text again is the same reference",
            "headers": {"Location": {"schema": {"type": "string"}}},
            "content": {"application/json": {"schema": _KEPT}},
        },
        **documented(400, 401, 403, 408, 413, 415, 422, 500, 503),
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {}, "example": {"lines": [1, 2, 3]}}},
        }
    },
}
GET: Final[dict[str, Any]] = {
    "summary": "Get what a `dataref` leads to",
    "responses": {
        200: {
            "description": "The JSON, as it was written",
            "content": {"application/json": {"schema": {}}},
        },
        **documented(401, 403, 404, 422, 500, 503),
    },
}
