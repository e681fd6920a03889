"""Golden messages: what was sent is read for ever, what is sent could have been read before."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from filaviva import canonical
from filaviva.errors import FilavivaError
from filaviva.evolution.catalog import PARTS, Catalog, Defined, Key, Part
from filaviva.evolution.findings import Finding
from filaviva.evolution.folder import Folder, Place, schema_path
from filaviva.evolution.nodes import Document
from filaviva.flaws import flaws_of, sentence
from filaviva.schemas import SchemaCheck
from filaviva.specimen import specimen
from filaviva_contracts import exact, wire_type

RESTORE: Final = "take it back from version control; a new shape is a new version"


def written_otherwise(one: Defined, folder: Folder) -> Iterator[Finding]:
    """Find what the code writes as its own schema does not have it: a serializer of its own."""
    own = SchemaCheck(one.schema)
    for name, value in _of_today(one, "data", folder):
        flaws = own.flaws(value)
        if flaws:
            yield Finding(
                one.key,
                sentence(f"{name} as the code writes it, by what its schema says,", flaws),
                "write it as it is read: a serializer, or Json, is in no schema",
            )


def unreadable_before(one: Defined, folder: Folder) -> Iterator[Finding]:
    """Let each release read what the code writes today: an example of its schema, and goldens."""
    for part in PARTS:
        if one.part(part) is None:
            continue
        for place in folder.revisions(one.key, part):
            reader = SchemaCheck(Document(folder.read(place.path)).opened.root)
            for name, value in _of_today(one, part, folder):
                flaws = reader.flaws(value)
                if flaws:
                    yield Finding(
                        one.key,
                        sentence(
                            f"{name} as the code writes it today, read by {place.path},", flaws
                        ),
                        f"make version {one.key[1] + 1}",
                    )


def _of_today(one: Defined, part: Part, folder: Folder) -> Iterator[tuple[str, Any]]:
    example = specimen(one.part(part) or {})
    if example is not None:
        yield "an example", example
    if part == "result":
        return
    goldens = [place for place in folder.goldens() if (place.key, place.part) == (one.key, part)]
    found = [("an example", example), *((p.path, golden_value(folder, p)) for p in goldens)]
    for name, data in found:
        try:
            message = one.contract.model_validate_json(canonical.dumps(data))
            yield name, exact.loads(message.model_dump_json(by_alias=True))
        except (ValidationError, PydanticSerializationError):
            continue  # `read_all` says so


def golden_value(folder: Folder, place: Place) -> Any:
    """Give the value inside a golden file: of data it is an event, of results the result itself."""
    content = folder.read(place.path)
    if place.part == "result":
        return content
    return content.get("data") if isinstance(content, dict) else None


def read_all(catalog: Catalog, folder: Folder) -> Iterator[Finding]:
    """Read every message that was ever sent, as far as somebody kept one."""
    for place in folder.goldens():
        if folder.retirement(place.key) is not None:
            continue
        yield from _misnamed(folder, place)
        yield from _unfit(folder, place)
        readers: dict[Key, Callable[[str], Any]] = dict(
            catalog.readers if place.part == "data" else catalog.result_readers
        )
        reader = readers.get(place.key)
        if reader is None:
            continue  # the gate says so, once for a version
        try:
            reader(canonical.dumps(golden_value(folder, place)))
        except (FilavivaError, ValidationError) as unread:
            yield Finding(
                place.key,
                f"{place.path} cannot be read any more: {_told(unread)}",
                "let the reader, or its upcaster, take it as before",
            )


def _told(unread: FilavivaError | ValidationError) -> str:
    return sentence("it", flaws_of(unread)) if isinstance(unread, ValidationError) else str(unread)


def _misnamed(folder: Folder, place: Place) -> Iterator[Finding]:
    if place.part == "result":
        return
    content = folder.read(place.path)
    found = content.get("type") if isinstance(content, dict) else None
    expected = wire_type(*place.key)
    if found != expected:
        yield Finding(
            place.key,
            f"{place.path} has the type {found!r}, expected {expected!r}",
            "write it as a CloudEvents event",
        )


def _unfit(folder: Folder, place: Place) -> Iterator[Finding]:
    path = schema_path(place.key, place.part)
    if not folder.exists(path):
        return
    flaws = SchemaCheck(folder.read(path)).flaws(golden_value(folder, place))
    if flaws:
        yield Finding(
            place.key,
            sentence(f"{place.path}, by {path},", flaws),
            "correct the draft" if place.path not in folder.released else RESTORE,
        )
