"""Find what a contract could never evolve from, before anybody has sent it."""

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    Discriminator,
    FutureDate,
    FutureDatetime,
    NaiveDatetime,
    PastDate,
    PastDatetime,
    Secret,
    SecretBytes,
    SecretStr,
)
from pydantic.fields import FieldInfo
from typing_extensions import TypeAliasType

_CONTENT = "a File: content is referenced, messages have 64 KiB at most"
_HIDDEN = "str: it would be sent as asterisks (refer to where the secret is kept)"
_WAITS = "without such a limit: messages wait, and by then it may have passed"
_UNSENDABLE: Mapping[Any, str] = {
    bytes: _CONTENT,
    bytearray: _CONTENT,
    memoryview: _CONTENT,
    SecretStr: _HIDDEN,
    SecretBytes: _HIDDEN,
    Secret: _HIDDEN,
    NaiveDatetime: "datetime or AwareDatetime: a time is sent with its zone",
    FutureDate: f"date {_WAITS}",
    FutureDatetime: f"datetime {_WAITS}",
    PastDate: f"date {_WAITS}",
    PastDatetime: f"datetime {_WAITS}",
}
_UNIONS = (Union, types.UnionType)


def unevolvable(model: type[BaseModel]) -> tuple[str, ...]:
    """Say what was found, what is expected and why, for each such place; empty if there is none."""
    return tuple(dict.fromkeys(_model(model, "", set())))


def _model(model: type[BaseModel], path: str, seen: set[Any]) -> Iterator[str]:
    if model in seen:  # it refers to itself, or is met on another way: there are very many ways
        return
    seen.add(model)
    where = f"{path}: " if path else ""
    if model.model_config.get("extra") == "forbid":
        yield (
            f'{where}found extra="forbid" on {model.__name__}, expected "ignore": a worker that is '
            "not yet replaced would refuse every member added later"
        )
    for name in model.model_computed_fields:
        yield (
            f"{_below(path, name)}: found a computed field, expected a field: it would be sent, "
            "and the schema, which is closed, has no such member"
        )
    for name, field in model.model_fields.items():
        yield from _field(name, field, path, seen)


def _field(name: str, field: FieldInfo, path: str, seen: set[Any]) -> Iterator[str]:
    here = _below(path, name)
    reads, writes = field.validation_alias, field.serialization_alias
    if reads != writes:
        yield (
            f"{here}: found a field that is read as {reads or name!r} and written as "
            f"{writes or name!r}, expected one name: Field(alias=…)"
        )
    if field.exclude and field.is_required():
        yield f"{here}: found a required field that is never written, expected one with a default"
    told_apart = field.discriminator is not None or _tells_apart(field.metadata)
    yield from _type(field.annotation, here, seen, told_apart=told_apart)


def _type(found: Any, path: str, seen: set[Any], *, told_apart: bool) -> Iterator[str]:
    origin, arguments = get_origin(found), get_args(found)
    if origin is Annotated:
        inner, *metadata = arguments
        told_apart = told_apart or _tells_apart(metadata)
        yield from _type(inner, path, seen, told_apart=told_apart)
    elif isinstance(found, type) and not arguments and issubclass(found, BaseModel):
        yield from _model(found, path, seen)
    elif isinstance(found, TypeAliasType):
        if found not in seen:
            seen.add(found)
            yield from _type(found.__value__, path, seen, told_apart=told_apart)
    elif isinstance(kind := origin or found, type) and kind in _UNSENDABLE:
        yield f"{path}: found {kind.__name__}, expected {_UNSENDABLE[kind]}"
    else:
        if origin in _UNIONS and not told_apart:
            yield from _untold(arguments, path)
        inside = path if origin in _UNIONS else f"{path}[]"
        for each in arguments:
            yield from _type(each, inside, seen, told_apart=False)


def _untold(members: tuple[Any, ...], path: str) -> Iterator[str]:
    models = [member.__name__ for member in map(_bare, members) if _is_model(member)]
    if len(models) > 1:
        yield (
            f"{path}: found {' or '.join(models)} and nothing that tells them apart, expected "
            'Field(discriminator="…"): what is added to one later could be read as another'
        )


def _bare(found: Any) -> Any:
    return get_args(found)[0] if get_origin(found) is Annotated else found


def _is_model(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, BaseModel)


def _tells_apart(metadata: list[Any]) -> bool:
    return any(
        isinstance(each, Discriminator) or getattr(each, "discriminator", None) is not None
        for each in metadata
    )


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
