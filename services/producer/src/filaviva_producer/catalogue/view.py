"""The AsyncAPI document as people read it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from filaviva_producer.catalogue.fields import Field, Fields

_EXPLAINED: Final = {
    "events": ("Events", "Facts that services publish. Each handler gets one job for each."),
    "jobs": ("Jobs", "Work that is submitted over HTTP, and done by a handler."),
    "lifecycle": (
        "How jobs end",
        "Published where a handler's policy asks for it. Bind a queue of your own.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One contract."""

    name: str
    title: str
    summary: str
    says: str
    deprecated: bool
    facts: Sequence[tuple[str, str]]
    fields: Sequence[Field]
    result: Sequence[Field]
    example: str
    schema: str


@dataclass(frozen=True, slots=True)
class Group:
    """Contracts that go the same way."""

    id: str
    heading: str
    explained: str
    entries: Sequence[Entry]


def groups(document: Mapping[str, Any]) -> list[Group]:
    """Give what there is, group by group; empty ones are left out."""
    entries: dict[str, list[Entry]] = {name: [] for name in _EXPLAINED}
    reader = _Reader(document)
    for operation in document["operations"].values():
        entries[operation["tags"][0]["name"]].append(reader.entry(operation))
    return [
        Group(name, *_EXPLAINED[name], sorted(several, key=lambda entry: entry.name))
        for name, several in entries.items()
        if several
    ]


class _Reader:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._schemas = document["components"]["schemas"]
        self._fields = Fields(self._schemas)

    def entry(self, operation: Mapping[str, Any]) -> Entry:
        (reference,) = operation["messages"]
        message = self._found(self._found(reference)["$ref"])
        name = operation["title"]
        return Entry(
            name=name,
            title=message["title"],
            summary=message.get("summary", ""),
            says=operation["summary"],
            deprecated=bool(message.get("x-deprecated")),
            facts=[*self._facts(operation), *_notices(message)],
            fields=self._fields.of(name),
            result=self._result(f"{name}.result"),
            example=_pretty([one["payload"] for one in message.get("examples", ())][:1]),
            schema=_pretty([self._schemas[name]]),
        )

    def _facts(self, operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        channel = self._found(operation["channel"])
        amqp = channel.get("bindings", {}).get("amqp")
        if amqp is None:
            yield "submit", f"POST {channel['address']} with Idempotency-Key"
            yield "queue", operation["x-filaviva-queue"]
            return
        yield "exchange", amqp["exchange"]["name"]
        yield "routing key", channel["address"]
        for queue in operation.get("x-filaviva-queues", ()):
            yield "handled on", queue

    def _result(self, name: str) -> list[Field]:
        return self._fields.of(name) if name in self._schemas else []

    def _found(self, reference: Mapping[str, str] | str) -> Any:
        place = reference if isinstance(reference, str) else reference["$ref"]
        found: Any = self._document
        for part in place.removeprefix("#/").split("/"):
            found = found[part]
        return found


def _notices(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "x-sunset" in message:
        yield "read until", message["x-sunset"]


def _pretty(values: Sequence[Any]) -> str:
    return "\n".join(json.dumps(value, indent=2, ensure_ascii=False) for value in values)
