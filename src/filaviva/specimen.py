"""Make a value that fits a JSON Schema: an example where nobody has written one."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from filaviva.errors import ConfigurationError
from filaviva.references import named
from filaviva.schemas import SchemaCheck

_DEEPEST: Final = 6
_MOST: Final = 1000  # values
_ID: Final = "018f0000-0000-7000-8000-000000000001"
_FORMATS: Final[Mapping[str, str]] = {
    "uuid": _ID,
    "date-time": "2026-11-30T12:00:00Z",
    "date": "2026-11-30",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "ana@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/17",
    "binary": "dGV4dA==",
    "byte": "dGV4dA==",
    "base64url": "dGV4dA",
    "json-pointer": "/number",
    "regex": "[a-z]+",
}
# What a pattern may be found to want.
_WORDS: Final = ("17", "9.90", "a", "A", "abc", "ABC", "BRL", "a-1", "text", _ID)


def specimen(schema: Mapping[str, Any]) -> Any:
    """Give a value that fits, or None: for a schema that asks for more than is guessed here."""
    value = _Writer(schema).value(schema, 0)
    try:
        check = SchemaCheck({**schema})
    except ConfigurationError:
        return None
    return value if not check.flaws(value) else None


class _Writer:
    """One schema with its definitions."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._made = 0

    @property
    def _is_enough(self) -> bool:
        # Models that all refer to each other would fill megabytes.
        return self._made > _MOST

    def value(self, schema: Any, depth: int) -> Any:
        self._made += 1
        if not isinstance(schema, Mapping) or depth > 2 * _DEEPEST:
            return None
        schema = self._resolved(schema)
        for told in _told(schema):
            return told
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            return self._branch(schema, branches, depth)
        return self._of_kind(schema, depth)

    def _of_kind(self, schema: Mapping[str, Any], depth: int) -> Any:
        kind = _kind(schema)
        if kind in ("integer", "number"):
            return _number(schema, whole=kind == "integer")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        return {"string": _text(schema), "boolean": True}.get(kind or "")

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(_DEEPEST):
            if "$ref" not in schema:
                break
            found = named(self._root, schema["$ref"])
            schema = {**found, **{name: v for name, v in schema.items() if name != "$ref"}}
        for part in schema.get("allOf", ()):
            schema = {**self._resolved(part), **schema}
        return schema

    def _branch(self, schema: Mapping[str, Any], branches: list[Any], depth: int) -> Any:
        # An optional field is "this or null": "this" tells a reader more.
        plain = [one for one in branches if one.get("type") != "null"]
        around = {name: v for name, v in schema.items() if name not in ("anyOf", "oneOf")}
        if self._is_enough and len(plain) < len(branches):
            return None
        chosen = plain[0] if plain else branches[0]
        return self.value({**around, **chosen}, depth + 1)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        members, required = schema.get("properties", {}), schema.get("required", ())
        more_of_it = depth < _DEEPEST and not self._is_enough
        wanted = [name for name in members if name in required or more_of_it]
        found = {name: self.value(members[name], depth + 1) for name in wanted}
        more = schema.get("additionalProperties")
        if not members and isinstance(more, Mapping) and depth < _DEEPEST:
            found["key"] = self.value(more, depth + 1)
        return found

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        found = [self.value(one, depth + 1) for one in schema.get("prefixItems", ())]
        least = schema.get("minItems", 0 if depth >= _DEEPEST else 1)
        items = schema.get("items")
        while isinstance(items, Mapping) and len(found) < least:
            found.append(self.value(items, depth + 1))
        return found


def _told(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Give what the schema itself says, the most telling first."""
    yield from schema.get("examples") or ()
    if "const" in schema:
        yield schema["const"]
    yield from schema.get("enum") or ()
    if schema.get("default") is not None:
        yield schema["default"]


def _kind(schema: Mapping[str, Any]) -> str | None:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return next((kind for kind in kinds if kind != "null"), None)
    if kinds is None and "properties" in schema:
        return "object"
    return kinds if isinstance(kinds, str) else None


def _text(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 1000)
    given = _FORMATS.get(schema.get("format", ""))
    candidates = (given,) if given else (*_WORDS, "0" * least)
    pattern = schema.get("pattern")
    for text in candidates:
        fits = pattern is None or re.search(pattern, text)
        if fits and least <= len(text) <= most:
            return text if pattern or given else "text"[:most].ljust(least, "t")
    return candidates[0]


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    step = schema.get("multipleOf", 1)
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 2 * step))
    up = -(-low // step) * step
    for number in (1, up, up + step, high, (low + high) / 2):
        if _fits(schema, number) and (not whole or number == int(number)):
            return int(number) if number == int(number) else number
    return 1


def _fits(schema: Mapping[str, Any], number: float) -> bool:
    return bool(
        number >= schema.get("minimum", number)
        and number <= schema.get("maximum", number)
        and ("exclusiveMinimum" not in schema or number > schema["exclusiveMinimum"])
        and ("exclusiveMaximum" not in schema or number < schema["exclusiveMaximum"])
        and number % schema.get("multipleOf", number or 1) == 0
    )
