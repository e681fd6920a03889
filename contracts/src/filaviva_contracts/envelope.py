"""The envelope of every message: CloudEvents 1.0, structured JSON out, both modes in."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from filaviva_contracts import exact
from filaviva_contracts.contract import Contract
from filaviva_contracts.extensions import kept, moment_text
from filaviva_contracts.names import parse_wire_type, schema_uri, wire_type

CONTENT_TYPE = "application/cloudevents+json"
_KNOWN = (
    "id",
    "source",
    "type",
    "subject",
    "datacontenttype",
    "dataschema",
    "traceparent",
    "correlationid",
)
_PREFIXES = ("ce-", "ce_", "cloudevents_", "cloudevents:")
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_cutter = json.JSONDecoder(parse_float=str, parse_int=str)
_SPACE = re.compile(r"[ \t\n\r]*")
_JSON_TYPE = re.compile(r"(application|text)/(json|[\w.+-]+\+json)(;.*)?")


class Undecodable(ValueError):
    """The bytes are no event that anybody here could read; `reason` is for a person."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One event. `data` is JSON text, exactly as it came or will go."""

    id: str
    source: str
    type: str
    time: datetime | None = None
    subject: str | None = None
    datacontenttype: str | None = "application/json"
    dataschema: str | None = None
    traceparent: str | None = None
    correlationid: str | None = None
    data: str = "null"
    extensions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Contract, *, id: str, source: str, **attributes: Any) -> "Envelope":  # noqa: A002 - CloudEvents' word
        """Wrap a contract's message."""
        kind, version = message.contract_type, message.contract_version
        return cls(
            id=id,
            source=source,
            type=wire_type(kind, version),
            dataschema=schema_uri(kind, version),
            data=message.model_dump_json(by_alias=True),
            **{"time": datetime.now(UTC), **attributes},
        )

    @property
    def contract(self) -> tuple[str, int] | None:
        """Name the contract's type and version; None if the type names no version."""
        return parse_wire_type(self.type)

    @property
    def dataref(self) -> str | None:
        """Name where its data lies, if that is not in it."""
        found = self.extensions.get("dataref")
        return found if isinstance(found, str) and self.data == "null" else None

    def with_attributes(self, attributes: Mapping[str, Any]) -> "Envelope":
        """Give the same event with these attributes; unknown names are extensions."""
        known = {name: value for name, value in attributes.items() if name in _KNOWN}
        more = {name: value for name, value in attributes.items() if name not in _KNOWN}
        if "time" in more:
            known["time"] = _time(more.pop("time"))
        return replace(self, **known, extensions={**self.extensions, **more})

    def encode(self) -> bytes:
        """Write the event as structured JSON; the data goes in untouched."""
        attributes: dict[str, Any] = {"specversion": "1.0"}
        for name in _KNOWN:
            value = getattr(self, name)
            if value is not None:
                attributes[name] = value
        if self.time is not None:
            attributes["time"] = moment_text(self.time)
        head = _encoder.encode({**self.extensions, **attributes})
        return head.encode() if self.dataref else f'{head[:-1]},"data":{self.data}}}'.encode()

    @classmethod
    def decode(
        cls, body: bytes, content_type: str | None = None, headers: Mapping[str, Any] | None = None
    ) -> "Envelope":
        """Read an event in structured or binary mode; anything else is Undecodable."""
        kind = (content_type or "").strip().lower()
        if kind.startswith("application/cloudevents-batch"):
            raise Undecodable("found a batch of events, expected one event")
        try:
            attributes = _attributes(headers or {})
            if kind.startswith("application/cloudevents") or "specversion" not in attributes:
                return _structured(cls, body)
            return _binary(cls, attributes, body, content_type)
        except exact.Malformed as malformed:
            # A name in it may be what cannot be stored, and the reason is.
            where = f" at {ascii(malformed.pointer)[1:-1]}" if malformed.pointer else ""
            raise Undecodable(f"{malformed.reason}{where}") from None


def _attributes(headers: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in headers.items():
        lower = str(name).lower()
        for prefix in _PREFIXES:
            if lower.startswith(prefix):
                plain = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                found[lower.removeprefix(prefix)] = plain
    if type(milliseconds := found.get("time")) is int:  # AMQP 1.0's own type, through a bridge
        found["time"] = _moment(milliseconds)
    return found


def _moment(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        raise Undecodable(f"time: found {milliseconds}, expected milliseconds") from None


def _structured(cls: type[Envelope], body: bytes) -> Envelope:
    event = exact.loads(body)
    if not isinstance(event, dict):
        raise Undecodable(f"found {_kind(event)}, expected a CloudEvents object")
    if "data_base64" in event:
        return _made(cls, event, _unpacked(event.pop("data_base64")))
    return _made(cls, event, _data_text(event.pop("data", None), body))


def _data_text(data: Any, body: bytes) -> str:
    try:
        return _encoder.encode(data)
    except TypeError:  # it has a Decimal: cut its text out, so that it stays as it was written
        return _raw_member(body.decode(), "data")


def _binary(
    cls: type[Envelope], attributes: dict[str, Any], body: bytes, content_type: str | None
) -> Envelope:
    if content_type and not _JSON_TYPE.fullmatch(content_type.strip().lower()):
        raise Undecodable(f"found content type {content_type[:100]!r}, expected application/json")
    exact.loads(body)
    return _made(
        cls, {"datacontenttype": content_type or "application/json", **attributes}, body.decode()
    )


def _made(cls: type[Envelope], event: dict[str, Any], data: str) -> Envelope:
    version = event.pop("specversion", None)
    if version != "1.0":
        raise Undecodable(f"specversion: found {version!r}, expected '1.0'")
    known = {name: _text(name, event.pop(name, None)) for name in _KNOWN}
    for name in ("id", "source", "type"):
        if not known[name]:
            raise Undecodable(f"{name}: found nothing, expected a non-empty string")
    fields: dict[str, Any] = {name: text for name, text in known.items() if text is not None}
    time = _time(event.pop("time", None))
    return cls(time=time, data=data, extensions=kept(event) if event else event, **fields)


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise Undecodable(f"{name}: found {_kind(value)}, expected a string")
    if flaw := exact.unstorable(value):  # in a header of binary mode
        raise Undecodable(f"{name}: {flaw}")
    return value


def _time(value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Undecodable(f"time: found {str(value)[:40]!r}, expected RFC 3339") from None
    known = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        return known if known.astimezone(UTC) else None
    except OverflowError:
        raise Undecodable(f"time: found {str(value)[:40]!r}, which is out of range") from None


def _unpacked(value: Any) -> str:
    try:
        data = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Undecodable("data_base64: found something else than base64") from None
    exact.loads(data)
    return data.decode()


def _raw_member(text: str, wanted: str) -> str:
    """Cut one member's value out of an object's text, so that its numbers stay as they were."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        name, at = _cutter.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _cutter.raw_decode(text, start)
        if name == wanted:
            return text[start:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return "null"


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
