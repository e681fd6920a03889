"""Does a reader take everything that a writer may send? If not: where, what, and what it expects.

The answer errs on one side only: what cannot be decided is a problem. So a change that passes is
safe, and one that does not may be waived by a person who knows more.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from filaviva.evolution import objects, scalars, sequences
from filaviva.evolution.likeness import alike, keyword_alike
from filaviva.evolution.nodes import ANNOTATIONS, Node, alternatives
from filaviva.evolution.problems import Pair, Problem, described, listed

Found: TypeAlias = Problem | Pair

_Places: TypeAlias = tuple[str, str]

_NESTED: Final = ("array", "object")
_SIMPLER: Final = {"integer": ("integer", "number")}


class Inclusion:
    """One comparison of a writer's schema with a reader's.

    Two places that many ways lead to are compared once: the first way tells everything, the others
    that something is wrong. What is being compared already (a recursive model) counts as fitting
    meanwhile; should it turn out not to, what was found to fit because of it is forgotten.
    """

    def __init__(self) -> None:
        self._begun: set[_Places] = set()
        self._fitting: dict[_Places, None] = {}
        self._wrong: dict[_Places, tuple[str, Problem]] = {}

    def compare(self, writer: Node, reader: Node, path: str = "") -> list[Found]:
        """Give every problem, and the objects that were laid side by side."""
        accepted = list(alternatives(reader))
        return [each for one in alternatives(writer) for each in self._branch(one, accepted, path)]

    def _forget(self, known: int) -> None:
        while len(self._fitting) > known:
            self._fitting.popitem()

    def _branch(self, sent: Node, accepted: list[Node], path: str) -> list[Found]:
        if any(each.is_anything for each in accepted):
            return []
        if (values := sent.values) is not None:
            return list(_values(sent, values, accepted, path))
        candidates = _candidates(sent, accepted)
        if not candidates:
            return [_other_type(sent, accepted, path)]
        # Of several that take it, the one it was: so what is laid side by side is the same thing.
        if len(candidates) > 1:
            candidates.sort(key=lambda each: not alike(each, sent))
        return self._best(sent, candidates, path)

    def _best(self, sent: Node, candidates: list[Node], path: str) -> list[Found]:
        tried = []
        for each in candidates:
            known = len(self._fitting)
            found = self._once(sent, each, path)
            if not _weight(found):
                return found
            self._forget(known)  # what lay side by side in it is told where it is met again
            tried.append(found)
        return min(tried, key=_weight)

    def _once(self, sent: Node, accepted: Node, path: str) -> list[Found]:
        if sent.kind not in _NESTED:
            return self._typed(sent, accepted, path)
        places = (sent.place, accepted.place)
        if places in self._begun or places in self._fitting:
            return []
        if places in self._wrong:
            return [_moved(*self._wrong[places], path)]
        known = len(self._fitting)
        self._begun.add(places)
        found = self._typed(sent, accepted, path)
        self._begun.discard(places)
        problem = next((each for each in found if isinstance(each, Problem)), None)
        if problem is None:
            self._fitting[places] = None
        else:
            self._wrong[places] = path, problem
            self._forget(known)
        return found

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


def _moved(old: str, problem: Problem, new: str) -> Problem:
    """Tell the problem where another way leads to it."""
    inside = problem.path.removeprefix(old)
    joined = f"{new}{inside}" if inside[:1] in {"", ".", "[", "{"} else f"{new}.{inside}"
    return replace(problem, path=joined.removeprefix("."))


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
    for keyword in sorted(set(accepted.schema) - _KNOWN - ANNOTATIONS):
        if keyword.startswith("x-"):  # somebody's note
            continue
        if keyword not in sent.schema or not keyword_alike(sent, accepted, keyword):
            yield Problem.of("keyword", path, sent, accepted, what=keyword)
