"""The gate: may this code be released beside what was released before?

Before: the code's contracts, and the folder with their files.
After:  a report; nothing is written.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from filaviva.evolution import recorded
from filaviva.evolution.catalog import PARTS, Catalog, Defined, Key, Part
from filaviva.evolution.change import Mode
from filaviva.evolution.comparison import compare
from filaviva.evolution.findings import Finding, Judged, Released, Report
from filaviva.evolution.folder import RELEASED, Folder, schema_path
from filaviva.evolution.goldens import RESTORE, read_all, unreadable_before, written_otherwise
from filaviva.evolution.terms import Terms

_EXPORT: Final = "run `filaviva contracts export`"


def check(
    catalog: Catalog, folder: Folder, terms: Terms, published: Iterable[Released] = ()
) -> Report:
    """Check everything there is; also against what is `published` in a registry."""
    released = {place.key for place in folder.places(folder.released)}
    judged = [each for one in catalog.defined.values() for each in judge(one, folder, terms)]
    judged += _judge_answers(catalog, folder, terms)
    judged += judge_published(catalog, published, terms)
    told = {each.key for each in judged if each.reasons}
    refused = {(each.key, each.part) for each in judged if each.refused}
    cases = recorded.digests(folder)
    findings = [*_edited(folder), *recorded.changed(folder, cases)]
    for one in catalog.defined.values():
        findings += _drifted(one, catalog, folder, refused)
        findings += written_otherwise(one, folder)
        if one.key not in told and terms.mode_of(one.key[0]).forward:
            # What the comparison has found is said better there; this finds what it has not.
            findings += unreadable_before(one, folder)
    findings += read_all(catalog, folder)
    findings += _unread(catalog, folder, released)
    return Report(
        checked=sorted(catalog.defined.keys() | released),
        drafts=sorted(catalog.defined.keys() - released),
        judged=judged,
        findings=list(dict.fromkeys(findings)),
        unfrozen=sorted(cases.keys() - folder.recorded.keys()),
    )


def judge(one: Defined, folder: Folder, terms: Terms) -> Iterator[Judged]:
    """Judge every change of one version since it was released."""
    mode = terms.mode_of(one.key[0])
    for part in PARTS:
        schema = one.part(part)
        revisions = folder.revisions(one.key, part)
        if schema is None:
            continue
        for place in revisions if mode.transitive else revisions[-1:]:
            before = Released(one.key, part, place.path, folder.read(place.path))
            yield from _verdicts(before, schema, mode, terms, edge=one.has_edge(part))


def judge_published(
    catalog: Catalog, published: Iterable[Released], terms: Terms
) -> Iterator[Judged]:
    """Judge every change since a version was deployed somewhere, released here or not."""
    for before in published:
        one = catalog.defined.get(before.key)
        schema = None if one is None else one.part(before.part)
        if one is not None and schema is not None:
            edge = one.has_edge(before.part)
            yield from _verdicts(before, schema, terms.mode_of(before.key[0]), terms, edge=edge)


def _judge_answers(catalog: Catalog, folder: Folder, terms: Terms) -> Iterator[Judged]:
    """Judge what those are answered who sent a version that is upcast: they know its results."""
    for key, schema in catalog.upcast_results.items():
        mode = Mode.FORWARD if terms.mode_of(key[0]).forward else Mode.NONE
        for place in folder.revisions(key, "result"):
            before = Released(key, "result", place.path, folder.read(place.path))
            yield from _verdicts(before, schema or {}, mode, terms, edge=False)


def _verdicts(
    before: Released, schema: dict[str, Any], mode: Mode, terms: Terms, *, edge: bool
) -> Iterator[Judged]:
    for found in compare(before.schema, schema, edge=edge):
        change = found.of_results() if before.part == "result" else found
        waiver = terms.waiver(before.key, change)
        yield Judged(
            key=before.key,
            part=before.part,
            against=before.where,
            mode=mode,
            change=change,
            reasons=change.broken(mode),
            waived=waiver.reason if waiver else None,
        )


def _edited(folder: Folder) -> Iterator[Finding]:
    for place in folder.places(folder.released):
        if not folder.exists(place.path):
            yield Finding(place.key, f"{place.path} is released, and gone", RESTORE)
        elif folder.digest(place.path) != folder.released[place.path]:
            yield Finding(place.key, f"{place.path} is released, and was edited", RESTORE)

    for place in folder.schemas():
        if place.name is not None and place.path not in folder.released:
            found = f"{place.path} was released once, and {RELEASED} does not name it"
            yield Finding(place.key, found, f"take {RELEASED} back from version control")


def _drifted(
    one: Defined, catalog: Catalog, folder: Folder, refused: set[tuple[Key, Part]]
) -> Iterator[Finding]:
    """Find files that do not say what the code says, where it may say so: others read them."""
    for part in PARTS:
        schema, path = one.part(part), schema_path(one.key, part)
        if schema is None:
            if folder.revisions(one.key, part) and one.key not in catalog.upcast_results:
                found = f"{path} is released, and the handler says no more what it returns"
                yield Finding(one.key, found, "give it a return annotation")
        elif not folder.exists(path):
            yield Finding(one.key, f"{path} is not there", _EXPORT)
        elif (one.key, part) not in refused and differs(
            folder, path, schema, edge=one.has_edge(part)
        ):
            yield Finding(one.key, f"{path} is not what the code says", _EXPORT)


def differs(folder: Folder, path: str, schema: dict[str, Any], *, edge: bool) -> bool:
    """Tell whether a file has to be written again: a released one is not for a description."""
    written = folder.read(path)
    if path in folder.released:
        return bool(compare(written, schema, edge=edge))
    return bool(written != schema)


def _unread(catalog: Catalog, folder: Folder, released: set[Key]) -> Iterator[Finding]:
    for key in sorted(released - catalog.readers.keys()):
        if folder.retirement(key) is None:
            kind, version = key
            yield Finding(
                key,
                f"{kind} v{version} is released, and nothing reads it any more",
                "keep its handler, or register an upcaster; once `filaviva contracts in-flight` "
                f"finds none: filaviva contracts retire {kind} {version}",
            )
