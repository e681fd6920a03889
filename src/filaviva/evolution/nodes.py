"""A JSON Schema (2020-12) as a tree that can be walked: references followed, unions taken apart."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from filaviva.errors import ConfigurationError
from filaviva.references import named
from filaviva.schemas import SchemaCheck
from filaviva_contracts.exact import escaped

Schema: TypeAlias = "dict[str, Any] | bool"

# They say something to people, and nothing about which values are taken.
ANNOTATIONS: Final = frozenset(
    {
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "default",
        "deprecated",
        "description",
        "discriminator",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
LITERAL: Final = frozenset({"const", "default", "enum", "examples"})
# Their keys are names that users chose, and no keywords.
MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
_UNIONS: Final = ("anyOf", "oneOf")


@dataclass(frozen=True)
class Document:
    """One schema with everything that it refers to."""

    root: dict[str, Any]
    _checks: dict[str, SchemaCheck] = field(default_factory=dict, repr=False)
    tags: dict[str, dict[str, list[str]]] = field(default_factory=dict, repr=False)

    @property
    def node(self) -> "Node":
        """Give the root as a node."""
        return Node(self.root, "", self)

    @cached_property
    def opened(self) -> "Document":
        """Give it as a tolerant reader sees it: members that it does not know are ignored."""
        return Document(_opened(self.root))

    @cached_property
    def closed(self) -> "Document":
        """Give it as our own writers fill it: with the members that it names and no others."""
        return Document(_closed(self.root))

    def at(self, reference: str) -> "Node":
        """Find what a reference names."""
        return Node(named(self.root, reference), reference.removeprefix("#"), self)

    def accepts(self, node: "Node", value: Any) -> bool:
        """Tell whether a value fits one of its nodes."""
        key = json.dumps(node.schema, sort_keys=True)
        if key not in self._checks:
            schema = node.schema if isinstance(node.schema, dict) else {"anyOf": [node.schema]}
            self._checks[key] = SchemaCheck({**schema, "$defs": self.root.get("$defs", {})})
        return not self._checks[key].flaws(value)


@dataclass(frozen=True)
class Node:
    """One place in a schema; `pointer` is where it stands in its file."""

    schema: Any  # a Schema
    pointer: str
    document: Document

    def child(self, *parts: str | int) -> "Node":
        """Go down to a schema inside."""
        found: Any = self.schema
        for part in parts:
            found = found[part]
        below = "".join(f"/{escaped(part)}" for part in parts)
        return Node(found, f"{self.pointer}{below}", self.document)

    def get(self, keyword: str, otherwise: Any = None) -> Any:
        """Read a keyword."""
        return self.schema.get(keyword, otherwise) if isinstance(self.schema, dict) else otherwise

    @cached_property
    def place(self) -> str:
        """Name it so that no two are called the same: beside a reference there may be more."""
        told = self.schema
        if isinstance(told, dict):
            told = {key: value for key, value in told.items() if _is_plain(value)}
        return f"{self.pointer} {json.dumps(told, sort_keys=True)}"

    @property
    def properties(self) -> dict[str, Any]:
        """The members that an object is known to have."""
        found: dict[str, Any] = self.get("properties", {})
        return found

    @property
    def is_anything(self) -> bool:
        """Whether every JSON value fits."""
        return self.schema is True or (
            isinstance(self.schema, dict) and not set(self.schema) - ANNOTATIONS
        )

    @property
    def values(self) -> list[Any] | None:
        """All values that fit, where they can be listed."""
        if isinstance(self.schema, dict) and "const" in self.schema:
            return [self.schema["const"]]
        listed: list[Any] | None = self.get("enum")
        if listed is None and self.kind == "boolean":
            return [False, True]
        return [None] if listed is None and self.kind == "null" else listed

    @property
    def kind(self) -> str:
        """The JSON type; "anything" where it is not said."""
        return str(self.get("type", "anything"))


def alternatives(node: Node) -> Iterator[Node]:
    """Give the branches of a union; what is none has one, of one type."""
    node = resolved(node)
    if node.schema is False:
        return
    for keyword in _UNIONS:
        if branches := node.get(keyword):
            rest = _without(node.schema, keyword)
            for number, branch in enumerate(branches):
                pointer = f"{node.pointer}/{keyword}/{number}"
                yield from alternatives(Node(_both(branch, rest), pointer, node.document))
            return
    types, where = node.get("type"), (node.pointer, node.document)
    if isinstance(types, list):
        yield from (Node({**node.schema, "type": each}, *where) for each in types)
    elif node.kind == "anything" and node.values is None and not node.is_anything:
        yield from (Node({**node.schema, "type": each}, *where) for each in _TYPES)
    else:
        yield node


def resolved(node: Node) -> Node:
    """Follow references, and `allOf` with one member."""
    followed: set[str] = set()
    while isinstance(node.schema, dict):
        alone = node.get("allOf", ())
        if "$ref" in node.schema:
            reference = node.schema["$ref"]
            if reference in followed:
                raise ConfigurationError(f"found the reference {reference!r}, which is its own end")
            followed.add(reference)
            target = node.document.at(reference)
            rest = _without(node.schema, "$ref")
        elif len(alone) == 1:
            target = node.child("allOf", 0)
            rest = _without(node.schema, "allOf")
        else:
            return node
        pointer = target.pointer if all(map(_is_plain, rest.values())) else node.pointer
        node = Node(_both(target.schema, rest), pointer, node.document)
    return node


def _is_plain(value: Any) -> bool:
    inside = value if isinstance(value, list) else [value]
    return not any(isinstance(each, dict) for each in inside)


def _both(schema: Any, rest: dict[str, Any]) -> Any:
    if not rest or schema is False:
        return schema
    if schema is True:
        return rest
    if "required" in rest and "required" in schema:
        both = dict.fromkeys([*schema["required"], *rest["required"]])
        rest, schema = _without(rest, "required"), {**schema, "required": list(both)}
    if all(schema.get(key, value) == value for key, value in rest.items()):
        return {**schema, **rest}
    return {"allOf": [schema, rest]}


def _without(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in {keyword, *ANNOTATIONS}}


def _opened(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    closed = schema.get("additionalProperties") is False
    kept = {key: value for key, value in schema.items() if key != "additionalProperties"}
    return _inside(kept if closed else schema, _opened)


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    found = _inside(schema, _closed)
    if "properties" in found and "patternProperties" not in found:
        found.setdefault("additionalProperties", False)
    return found


def _inside(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Change each schema inside a schema."""
    changed = {}
    for key, value in schema.items():
        if key in LITERAL:
            changed[key] = value
        elif key in MAPS:
            changed[key] = {name: change(inner) for name, inner in value.items()}
        elif isinstance(value, list):
            changed[key] = [change(inner) for inner in value]
        else:
            changed[key] = change(value)
    return changed
