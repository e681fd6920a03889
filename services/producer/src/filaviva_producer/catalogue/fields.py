"""A JSON Schema as a table: one row for each member, in words."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

_PLACE: Final = "#/components/schemas/"
_DEEPEST: Final = 5
_LONGEST: Final = 200
_MOST: Final = 500

# What bounds a value, in words.
_BOUNDS: Final[Mapping[str, str]] = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "{} characters or more",
    "maxLength": "{} characters at most",
    "minItems": "{} items or more",
    "maxItems": "{} items at most",
    "pattern": "like {}",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One member: where it is, what it is, and what else is known of it."""

    path: str
    kind: str
    required: bool
    says: str


class Fields:
    """The members of schemas that refer to each other."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def of(self, name: str) -> list[Field]:
        """Give the members of one schema and of what is in them."""
        found = self._members(self._schemas[name], "", frozenset((name,)))
        told = list(islice(found, _MOST))
        # Models that all refer to each other have a hundred thousand ways through them.
        more = [Field("…", "more", required=False, says="")] if next(found, None) else []
        return told + more

    def _members(
        self, schema: Mapping[str, Any], path: str, above: frozenset[str]
    ) -> Iterator[Field]:
        required = schema.get("required", ())
        for name, member in schema.get("properties", {}).items():
            here = f"{path}{name}"
            yield Field(here, self._kind(member), name in required, _says(member))
            if here.count(".") < _DEEPEST:
                yield from self._inside(member, here, above)

    def _inside(self, member: Any, path: str, above: frozenset[str]) -> Iterator[Field]:
        for part, suffix in _parts(member):
            name = part.get("$ref", "").removeprefix(_PLACE)
            if name and name in above:
                continue  # it holds itself: told once
            found = self._schemas.get(name, part) if name else part
            if found.get("properties"):
                yield from self._members(found, f"{path}{suffix}.", above | {name})
            elif name:
                yield from self._inside(found, f"{path}{suffix}", above | {name})

    def _kind(self, schema: Any, within: frozenset[str] = frozenset()) -> str:
        if not isinstance(schema, Mapping):
            return "anything"
        if "$ref" in schema:
            return self._named(schema["$ref"].removeprefix(_PLACE), within)
        if "const" in schema:
            return _written(schema["const"])
        if "enum" in schema:
            return _either(list(map(_written, schema["enum"])))
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            return _either([self._kind(branch, within) for branch in branches])
        return self._plain(schema, within)

    def _named(self, name: str, within: frozenset[str]) -> str:
        found = self._schemas.get(name, {})
        if "properties" in found or name in within:  # what holds itself is told by its name
            return str(found.get("title", name.rpartition(".")[2]))
        return self._kind(found, within | {name})

    def _plain(self, schema: Mapping[str, Any], within: frozenset[str]) -> str:
        kinds = schema.get("type", "anything")
        if isinstance(kinds, list):
            return _either(kinds)
        if kinds == "array":
            return f"list of {self._kind(schema['items'], within)}" if "items" in schema else "list"
        inner = schema.get("additionalProperties")
        if kinds == "object" and isinstance(inner, Mapping):
            return f"object of {self._kind(inner, within)}"
        return f"{kinds} ({schema['format']})" if "format" in schema else str(kinds)


def _parts(schema: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Give the schemas that stand in the place of one, and what the path gets for each."""
    if not isinstance(schema, Mapping):
        return
    yield schema, ""
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _parts(branch)
    for name, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(name), Mapping):
            yield from ((part, suffix + more) for part, more in _parts(schema[name]))


def _says(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    inner = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    bounded = {**(inner[0] if len(inner) == 1 else {}), **schema}
    said = [str(bounded["description"])] if "description" in bounded else []
    said += [words.format(bounded[name]) for name, words in _BOUNDS.items() if name in bounded]
    if schema.get("default") is not None:
        said.append(f"default {_written(schema['default'])}")
    return "; ".join(said)


def _either(kinds: Sequence[str]) -> str:
    # What may be left out is often "this or null".
    ordered = sorted(dict.fromkeys(kinds), key=lambda kind: kind == "null")
    return " or ".join(ordered)


def _written(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
