"""Does a reader take everything that a writer may send? If not: where, what, and what it expects.

The answer errs on one side only: what cannot be decided is a problem. So a change that passes is
safe, and one that does not may be waived by a person who knows more.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from filaviva.evolution import objects, scalars, sequences
from filaviva.evolution.nodes import Node, alternatives, expanded
from filaviva.evolution.problems import Pair, Problem, described, listed

Found: TypeAlias = Problem | Pair

_SIMPLER: Final = {"integer": ("integer", "number")}


class Inclusion:
    """One comparison of a writer's schema with a reader's."""

    def __init__(self) -> None:
        self._begun: set[tuple[str, str]] = set()

    def compare(self, writer: Node, reader: Node, path: str = "") -> list[Found]:
        """Give every problem, and the objects that were laid side by side."""
        within = (writer.pointer, reader.pointer)
        if within in self._begun:  # a recursive model: it is being compared already
            return []
        self._begun.add(within)
        try:
            accepted = list(alternatives(reader))
            sent = list(alternatives(writer))
            return [each for one in sent for each in self._branch(one, accepted, path)]
        finally:
            self._begun.discard(within)

    def _branch(self, sent: Node, accepted: list[Node], path: str) -> list[Found]:
        if any(each.is_anything for each in accepted):
            return []
        if (values := sent.values) is not None:
            return list(_values(sent, values, accepted, path))
        candidates = _candidates(sent, accepted)
        if not candidates:
            return [_other_type(sent, accepted, path)]
        form = expanded(sent.schema, sent.document)
        # Of several that take it, the one it was: so what is laid side by side is the same thing.
        candidates.sort(key=lambda each: expanded(each.schema, each.document) != form)
        return min((self._typed(sent, each, path) for each in candidates), key=_weight)

    def _typed(self, sent: Node, accepted: Node, path: str) -> list[Found]:
        if accepted.values is not None:
            return [Problem.of("values", path, sent, accepted)]
        match sent.kind:
            case "object":
                found = objects.compare(sent, accepted, path, self.compare)
            case "array":
                found = sequences.compare(sent, accepted, path, self.compare)
            case "string":
                found = scalars.strings(sent, accepted, path)
            case _:
                found = scalars.numbers(sent, accepted, path)
        return [*found, *_unknown_keywords(sent, accepted, path)]


def _candidates(sent: Node, accepted: Iterable[Node]) -> list[Node]:
    kinds = _SIMPLER.get(sent.kind, (sent.kind,))
    fit = [each for each in accepted if each.kind in kinds]
    if sent.kind != "object":
        return fit
    return [each for each in fit if not objects.are_told_apart(sent, each)]


def _weight(found: list[Found]) -> int:
    return sum(isinstance(each, Problem) for each in found)


def _values(sent: Node, values: list[object], accepted: list[Node], path: str) -> Iterator[Problem]:
    refused = [
        value
        for value in values
        if not any(each.document.accepts(each, value) for each in accepted)
    ]
    if refused:
        kind = (
            "type" if sent.kind in {"boolean", "null"} and len(refused) == len(values) else "values"
        )
        reader = accepted[0] if accepted else sent
        yield Problem(
            kind=kind,
            path=path,
            writer_pointer=sent.pointer,
            reader_pointer=reader.pointer,
            found=listed(refused),
            expected=" or ".join(dict.fromkeys(map(described, accepted))) or "nothing at all",
        )


def _other_type(sent: Node, accepted: list[Node], path: str) -> Problem:
    tags = [each for each in accepted if each.kind == sent.kind]
    return Problem(
        kind="member" if tags else "type",
        path=path,
        writer_pointer=sent.pointer,
        reader_pointer=accepted[0].pointer if accepted else "",
        found=described(sent),
        expected=" or ".join(dict.fromkeys(map(described, accepted))) or "nothing at all",
    )


_KNOWN: Final = objects.KNOWN | sequences.KNOWN | scalars.KNOWN | {"type", "enum", "const"}


def _unknown_keywords(sent: Node, accepted: Node, path: str) -> Iterator[Problem]:
    theirs = expanded(sent.schema, sent.document)
    ours = expanded(accepted.schema, accepted.document)
    for keyword in sorted(set(ours) - _KNOWN):
        if keyword.startswith("x-"):  # somebody's note
            continue
        if keyword not in theirs or theirs[keyword] != ours[keyword]:
            yield Problem.of("keyword", path, sent, accepted, what=keyword)
