"""Check a value against a JSON Schema, with exact numbers and formats that are enforced."""

from collections.abc import Iterator
from datetime import time
from functools import cached_property
from typing import Any, Never

from filaviva.errors import ConfigurationError, Flaw
from filaviva.flaws import pointer
from filaviva.told_apart import told_apart
from filaviva_contracts import Contract

_MOST = 100
UNKNOWN_MEMBER = "there is no such member in this contract"


def schema_of(contract: type[Contract]) -> dict[str, Any]:
    """Give a contract's schema; ConfigurationError says why it has none that may be published."""
    try:
        return contract.json_schema()
    except TypeError as refused:
        raise ConfigurationError(str(refused)) from None


class SchemaCheck:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._validator = _compiled(schema)

    @cached_property
    def _telling(self) -> Any:
        return _compiled(told_apart(self._schema))

    def flaws(self, value: Any) -> tuple[Flaw, ...]:
        """Find what is wrong; empty if nothing is. The value itself is not quoted."""
        if self._validator.is_valid(value):
            return ()
        found: list[Flaw] = []
        for error in self._telling.iter_errors(value):
            found += _told(error)
            if len(found) >= _MOST:
                break
        return tuple(found[:_MOST]) or (Flaw("", "it does not fit"),)


def _compiled(schema: dict[str, Any]) -> Any:
    import jsonschema_rs  # noqa: PLC0415 - 40 ms that importing the SDK should not cost

    try:
        return jsonschema_rs.Draft202012Validator(
            schema,
            validate_formats=True,
            formats={"time": _is_time},
            mask="the value",
            retriever=_refuse,
        )
    except (jsonschema_rs.ValidationError, ValueError) as broken:
        reason = str(broken).partition("\n")[0]
        raise ConfigurationError(f"the schema cannot be used: {reason}") from broken


def _told(error: Any) -> Iterator[Flaw]:
    """Point at the member itself where the schema's error points at the object around it."""
    where, kind = pointer(error.instance_path), error.kind
    if kind.name == "required":
        yield Flaw(where + pointer([kind.property]), "it is missing")
    elif kind.name in {"additionalProperties", "unevaluatedProperties"}:
        for name in kind.unexpected:
            yield Flaw(where + pointer([name]), UNKNOWN_MEMBER)
    elif kind.name == "anyOf" and len(branches := _likely(kind.context)) == 1:
        for inner in branches[0]:
            yield from _told(inner)
    else:
        yield Flaw(where, error.message)


def _likely(branches: list[list[Any]]) -> list[list[Any]]:
    # An optional field is "this or null": what is wrong with "this" is what a reader needs.
    return [errors for errors in branches if not any(_wants_null(error) for error in errors)]


def _wants_null(error: Any) -> bool:
    return bool(error.kind.name == "type" and error.kind.types == ["null"])


def _refuse(uri: str) -> Never:
    raise ValueError(f"found a reference to {uri}, expected none outside the schema")


def _is_time(text: str) -> bool:
    # A time of day without an offset is what Python's `time` usually is; RFC 3339 wants one.
    try:
        time.fromisoformat(text)
    except ValueError:
        return False
    return True
