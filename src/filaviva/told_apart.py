"""Write unions whose members a value tells apart so that only the member that is meant is asked.

What is wrong with a value of a union would otherwise be wrong in as many ways as it has members; of
a union that contains itself, in so many ways that a message of a hundred bytes takes minutes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from filaviva.references import named

Schema: TypeAlias = Mapping[str, Any]

_LITERAL: Final = frozenset({"const", "default", "enum", "examples"})
_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_FEWEST: Final = 2


def told_apart(root: Schema) -> dict[str, Any]:
    """Give a schema that takes the same, but for values that say not which member they are."""
    return {key: _rewritten(key, value, root) for key, value in _one(root, root).items()}


def _rewritten(key: str, value: Any, root: Schema) -> Any:
    if key in _LITERAL:
        return value
    if key in _MAPS and isinstance(value, Mapping):
        return {name: _inside(inner, root) for name, inner in value.items()}
    return _inside(value, root)


def _inside(value: Any, root: Schema) -> Any:
    if isinstance(value, list):
        return [_inside(each, root) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _rewritten(key, inner, root) for key, inner in _one(value, root).items()}


def _one(schema: Schema, root: Schema) -> Schema:
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list) and len(branches) >= _FEWEST:
            for name, tags in _tags(branches, root):
                rest = {key: value for key, value in schema.items() if key != keyword}
                return {**rest, "allOf": [*rest.get("allOf", ()), *_cases(name, tags, branches)]}
    return schema


def _cases(name: str, tags: Sequence[Sequence[Any]], branches: Sequence[Any]) -> list[Any]:
    known = [tag for each in tags for tag in each]
    member = {"type": "object", "required": [name], "properties": {name: {"enum": known}}}
    cases = [
        {
            "if": {"properties": {name: {"enum": each}}, "required": [name]},
            "then": branch,
        }
        for each, branch in zip(tags, branches, strict=True)
    ]
    return [member, *cases]


def _tags(branches: Sequence[Any], root: Schema) -> list[tuple[str, list[list[Any]]]]:
    """Find the members that tell all branches apart, with the values that each has there."""
    objects = [_resolved(branch, root).get("properties", {}) for branch in branches]
    found = []
    for name in objects[0]:
        tags = [_values(each.get(name), root) for each in objects]
        known = [repr(tag) for each in tags for tag in each]
        if all(tags) and len(set(known)) == len(known):
            found.append((name, tags))
    return found[:1]


def _values(schema: Any, root: Schema) -> list[Any]:
    known = _resolved(schema, root)
    return [known["const"]] if "const" in known else list(known.get("enum", ()))


def _resolved(schema: Any, root: Schema) -> Schema:
    seen: list[str] = []
    while isinstance(schema, Mapping) and "$ref" in schema and schema["$ref"] not in seen:
        seen.append(schema["$ref"])
        schema = named(root, schema["$ref"])
    return schema if isinstance(schema, Mapping) else {}
