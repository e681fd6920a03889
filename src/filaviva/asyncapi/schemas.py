"""JSON Schemas in the place where AsyncAPI has them: one flat table, referred to by name."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_PLACE: Final = "#/components/schemas/"
_OWN: Final = "#/$defs/"
_FREE: Final = re.compile(r"[^A-Za-z0-9._-]")

TRACEPARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ID: Final = "018f0000-0000-7000-8000-000000000001"

CLOUD_EVENT: Final[dict[str, Any]] = {
    "title": "CloudEvent",
    "description": "What every message has around its data (CloudEvents 1.0, structured JSON).",
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {
            "type": "string",
            "minLength": 1,
            "description": "with the source it names the event, however often it is published",
        },
        "source": {"type": "string", "minLength": 1, "description": "who says it"},
        "type": {"type": "string", "description": "the contract with its version"},
        "subject": {"type": "string", "description": "what it is about; of ours, the job's id"},
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"const": "application/json"},
        "dataschema": {"type": "string", "description": "where the registry has the schema"},
        "traceparent": {"type": "string", "description": "of the request that began it all"},
        "tracestate": {"type": "string", "description": "what came with it, if anything did"},
        "correlationid": {"type": "string", "description": "of the request that began it all"},
        "dataref": {
            "type": "string",
            "examples": [f"/v1/contents/sha256-{64 * '0'}"],
            "description": "where the data lies, if it is too large for a message",
        },
        "tenant": {
            "type": "string",
            "pattern": "^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$",
            "description": "whose jobs an event becomes; without it `default`",
        },
    },
}

HEADERS: Final[dict[str, Any]] = {
    "title": "AMQP headers",
    "description": "In binary mode the event's attributes are here too (`cloudEvents:id`, …).",
    "type": "object",
    "properties": {
        "traceparent": {"type": "string", "description": "of this hop"},
        "tracestate": {"type": "string", "description": "as long as it is the same trace"},
    },
}


def reference(name: str) -> dict[str, str]:
    """Refer to a schema of the table."""
    return {"$ref": f"{_PLACE}{name}"}


def entries(name: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give a schema and its definitions as entries of the table, the schema itself first."""
    places = {key: f"{name}.{_FREE.sub('_', key)}" for key in schema.get("$defs", {})}
    own = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "$defs")}
    yield name, _moved(own, places)
    for key, place in places.items():
        yield place, _moved(schema["$defs"][key], places)


def _moved(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_moved(each, places) for each in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _moved(each, places) for key, each in value.items()}
    target = value.get("$ref")
    if isinstance(target, str) and target.startswith(_OWN):
        key = target.removeprefix(_OWN).replace("~1", "/").replace("~0", "~")
        found["$ref"] = f"{_PLACE}{places[key]}"
    # AsyncAPI has a name where OpenAPI, and so pydantic, has an object.
    chooser = value.get("discriminator")
    if isinstance(chooser, Mapping) and "propertyName" in chooser:
        found["discriminator"] = chooser["propertyName"]
    return found
