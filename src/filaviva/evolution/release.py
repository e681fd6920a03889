"""Write the files of contracts, and freeze them when they are released.

A draft is written over as often as one likes. A released schema is never: where its version is
widened, what was released stays beside it as a revision.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from filaviva.errors import Incompatible, NotFound
from filaviva.evolution.catalog import PARTS, Catalog, Defined, Key, Part
from filaviva.evolution.findings import Judged, Report
from filaviva.evolution.folder import Folder, golden_path, schema_path
from filaviva.evolution.gate import differs, judge
from filaviva.evolution.recorded import digests
from filaviva.evolution.terms import Terms
from filaviva.schemas import SchemaCheck
from filaviva.specimen import specimen
from filaviva_contracts import schema_uri, wire_type

_TIME: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Written:
    """The files that were written, and those that were kept under another name."""

    paths: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def export(catalog: Catalog, folder: Folder, terms: Terms) -> Written:
    """Write what the code says; a released version only as it may be widened."""
    for one in catalog.defined.values():
        for verdict in judge(one, folder, terms):
            _refuse(verdict)
    written: list[str] = []
    released = dict(folder.released)
    for one in catalog.defined.values():
        for part, schema in _parts(one):
            written += _write(one, part, schema, folder, released)
        written += _first_goldens(one, folder)
    if released.keys() != folder.released.keys():
        folder.lock(released)
    return Written(tuple(written), tuple(sorted(released.keys() - folder.released.keys())))


def _refuse(verdict: Judged) -> None:
    if verdict.refused:
        kind, version = verdict.key
        raise Incompatible(
            f"{kind} v{version}, {verdict.change.path or 'the message'}: {verdict.reasons[0]}; "
            f"{verdict.next_step}"
        )


def _write(
    one: Defined, part: Part, schema: dict[str, Any], folder: Folder, released: dict[str, str]
) -> Iterator[str]:
    path = schema_path(one.key, part)
    if folder.exists(path):
        if not differs(folder, path, schema, edge=one.has_edge(part)):
            return
        if path in released:
            _keep(folder, released, one.key, part)
    folder.write(path, schema)
    yield path


def _parts(one: Defined) -> Iterator[tuple[Part, dict[str, Any]]]:
    for part in PARTS:
        schema = one.part(part)
        if schema is not None:
            yield part, schema


def _keep(folder: Folder, released: dict[str, str], key: Key, part: Part) -> None:
    """Keep what was released under the next revision's name."""
    path = schema_path(key, part)
    number = len(folder.revisions(key, part))
    revision = schema_path(key, part, f"r{number}")
    (folder.root / path).rename(folder.root / revision)
    released[revision] = released.pop(path)


def _first_goldens(one: Defined, folder: Folder) -> Iterator[str]:
    known = {(place.key, place.part) for place in folder.goldens()}
    for part, schema in _parts(one):
        path = golden_path(one.key, part)
        example = specimen(schema)
        if (one.key, part) in known:
            continue
        if example is None and SchemaCheck(schema).flaws(None):
            continue  # nothing was found that fits: a person has to write it
        folder.write(path, example if part == "result" else event(one.key, example))
        yield path


def event(key: Key, data: Any) -> dict[str, Any]:
    """Wrap data the way it is sent."""
    return {
        "specversion": "1.0",
        "id": "golden",
        "source": "golden",
        "type": wire_type(*key),
        "time": _TIME,
        "datacontenttype": "application/json",
        "dataschema": schema_uri(*key),
        "data": data,
    }


def release(
    catalog: Catalog, folder: Folder, report: Report, *, dry_run: bool = False
) -> tuple[str, ...]:
    """Freeze every draft: from now on its version may only be widened. Gives their names."""
    if not report.passes:
        raise Incompatible("the check does not pass; next: filaviva contracts check")
    drafts = [
        place
        for place in (*folder.schemas(), *folder.goldens())
        if place.path not in folder.released and place.key in catalog.defined
    ]
    known = {(place.key, place.part) for place in folder.goldens()}
    for place in drafts:
        if (place.key, place.part) not in known:
            path = golden_path(place.key, place.part)
            raise Incompatible(
                f"{place.path} has no golden message: write one to {folder.root / path}"
            )
    if (drafts or report.unfrozen) and not dry_run:
        fresh = {place.path: folder.digest(place.path) for place in drafts}
        folder.lock({**folder.released, **fresh}, recorded=digests(folder))
    return (*(place.path for place in drafts), *report.unfrozen)


def retire(catalog: Catalog, folder: Folder, key: Key, reason: str) -> None:
    """Let go of a version that nothing reads: its files stay, its messages are expected no more."""
    name = wire_type(*key)
    if not folder.is_released(key):
        raise NotFound(f"found no release of {name}")
    if key in catalog.readers:
        raise Incompatible(f"{name} is read by the code: take out its handler or upcaster first")
    folder.lock(folder.released, retired={**folder.retired, name: reason})
