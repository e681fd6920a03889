"""Try what the code would make of what was really sent, as far as samples tell."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from filaviva.errors import FilavivaError, Flaw
from filaviva.evolution.catalog import Catalog
from filaviva.evolution.outline import FORMATS, OTHER, filled, unknown_texts
from filaviva.evolution.samples import Sample
from filaviva.schemas import SchemaCheck


@dataclass(frozen=True, slots=True)
class Tried:
    """What would become of one sample: flaws that are certain, and those that only may be."""

    sample: Sample
    certain: tuple[Flaw, ...] = ()
    possible: tuple[Flaw, ...] = ()


def tried(catalog: Catalog, samples: Iterable[Sample]) -> list[Tried]:
    """Try every sample that the code knows the version of; give those with flaws, worst first."""
    checks = {
        key: (SchemaCheck(one.schema), SchemaCheck(_without_texts(one.schema)))
        for key, one in catalog.defined.items()
    }
    found = []
    for sample in samples:
        if sample.key in checks:
            found.append(_against_schema(sample, *checks[sample.key]))
        elif sample.key in catalog.readers:
            found.append(_by_reader(sample, catalog.readers[sample.key]))
    flawed = [each for each in found if each.certain or each.possible]
    return sorted(flawed, key=lambda each: (not each.certain, -each.sample.seen))


def _against_schema(sample: Sample, full: SchemaCheck, loose: SchemaCheck) -> Tried:
    low, high = filled(sample.outline, high=False), filled(sample.outline, high=True)
    all_flaws = [_flaws(full, value) for value in (low, high)]
    sure = [_flaws(loose, value) for value in (low, high)]
    undecided = {
        pointer for end in (False, True) for pointer in unknown_texts(sample.outline, high=end)
    }
    certain = {pointer: flaw for pointer, flaw in sure[0].items() if pointer in sure[1]}
    for pointer, flaw in all_flaws[0].items():
        if pointer in all_flaws[1] and pointer not in undecided:
            certain.setdefault(pointer, flaw)
    possible = {
        pointer: flaw
        for flaws in all_flaws
        for pointer, flaw in flaws.items()
        if pointer not in certain
    }
    return Tried(sample, tuple(certain.values()), tuple(possible.values()))


def _flaws(check: SchemaCheck, value: Any) -> dict[str, Flaw]:
    found = check.flaws(value)
    # A member that its contract never named came over AMQP, where nobody minds it.
    return {flaw.pointer: flaw for flaw in found if OTHER not in flaw.pointer}


def _by_reader(sample: Sample, reader: Callable[[str], Any]) -> Tried:
    """Let the upcasters try; what a text holds matters to them, so nothing is certain."""
    for end in (False, True):
        try:
            reader(json.dumps(filled(sample.outline, high=end)))
        except (FilavivaError, ValidationError) as unread:
            return Tried(sample, possible=(Flaw("", str(unread).partition("\n")[0]),))
    return Tried(sample)


def _without_texts(schema: Any) -> Any:
    """Leave out what only the characters of a text can answer."""
    if isinstance(schema, list):
        return [_without_texts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_texts(value) for key, value in schema.items() if _decidable(key, value)}


def _decidable(key: str, value: Any) -> bool:
    if key == "pattern":
        return not isinstance(value, str)  # else it is a member of that name
    return not (key == "format" and isinstance(value, str) and value not in FORMATS)


def summary(found: Iterable[Tried]) -> Iterator[str]:
    """Say it in lines."""
    for each in found:
        sample = each.sample
        often = "once" if sample.seen == 1 else f"{sample.seen} times"
        times = f"{sample.type} v{sample.version}, sent {often}"
        for word, flaws in (("refused", each.certain), ("perhaps", each.possible)):
            for flaw in flaws:
                yield f"{word:<8} {times}: {flaw.pointer or '/'}: {flaw.detail}"
