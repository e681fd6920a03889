"""Objects: what a reader needs, refuses, or reads otherwise."""

import re
from collections.abc import Iterator
from typing import Final

from filaviva.evolution.nodes import Node, alternatives
from filaviva.evolution.problems import Pair, Problem
from filaviva.evolution.scalars import lengths
from filaviva.evolution.sequences import Compare

KNOWN: Final = frozenset(
    {
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
    }
)


def compare(sent: Node, accepted: Node, path: str, deeper: Compare) -> Iterator[Problem | Pair]:
    """Compare two objects, member by member and then what has no name."""
    yield Pair(path, sent, accepted)
    yield from lengths(sent, accepted, path, "minProperties", "maxProperties")
    yield from _required(sent, accepted, path)
    for name in sent.properties:
        yield from _member(sent, accepted, name, path, deeper)
    yield from _nameless(sent, accepted, path, deeper)
    yield from _names(sent, accepted, path, deeper)


def are_told_apart(sent: Node, accepted: Node) -> bool:
    """Tell whether a member with constant values says that they are members of a union unlike."""
    ours, theirs = _tags(sent), _tags(accepted)
    shared = ours.keys() & theirs.keys()
    return any(not set(ours[name]) & set(theirs[name]) for name in shared)


def below(path: str, name: str) -> str:
    """Name a member: `lines[].amount`."""
    plain = re.fullmatch(r"[\w-]+", name)
    part = name if plain else f'"{name}"'
    return f"{path}.{part}" if path else part


def _tags(node: Node) -> dict[str, list[str]]:
    """Give what its members with constant values say; found once, for unions ask it many times."""
    known = node.document.tags
    place = node.place
    if place not in known:
        known[place] = dict(_constant(node))
    return known[place]


def _constant(node: Node) -> Iterator[tuple[str, list[str]]]:
    for name in node.properties:
        branches = alternatives(node.child("properties", name))
        values = [branch.values for branch in branches if branch.kind not in {"boolean", "null"}]
        if values and all(each is not None for each in values):
            yield name, [repr(value) for each in values for value in each or ()]


def _required(sent: Node, accepted: Node, path: str) -> Iterator[Problem]:
    for name in accepted.get("required", ()):
        if name not in sent.get("required", ()):
            yield Problem(
                kind="required",
                path=below(path, name),
                writer_pointer=_pointer(sent, name),
                reader_pointer=_pointer(accepted, name),
                found="nothing there",
                expected="a value",
            )


def _member(
    sent: Node, accepted: Node, name: str, path: str, deeper: Compare
) -> Iterator[Problem | Pair]:
    inside = below(path, name)
    ours = sent.child("properties", name)
    theirs = list(_readers(accepted, name))
    for reader in theirs:
        if reader.schema is False:
            yield Problem(
                kind="unknown",
                path=inside,
                writer_pointer=ours.pointer,
                reader_pointer=accepted.pointer,
                found="a value",
                expected="no such member",
            )
        else:
            yield from deeper(ours, reader, inside)


def _readers(node: Node, name: str) -> Iterator[Node]:
    """Give every schema that a member of this name has to fit."""
    known = name in node.properties
    if known:
        yield node.child("properties", name)
    for pattern in node.get("patternProperties", {}):
        if re.search(pattern, name):
            known = True
            yield node.child("patternProperties", pattern)
    if not known:
        yield _others(node)


def _others(node: Node) -> Node:
    if "additionalProperties" in node.schema:
        return node.child("additionalProperties")
    return Node(True, node.pointer, node.document)  # noqa: FBT003 - the schema of anything


def _nameless(sent: Node, accepted: Node, path: str, deeper: Compare) -> Iterator[Problem | Pair]:
    """Compare the members that the writer's schema does not name: of dicts, and of open models."""
    for inside, ours in _unnamed(sent, path):
        yield from _beside(ours, accepted, inside, deeper)
    if _others(sent).schema is not False:
        for name in accepted.properties.keys() - sent.properties.keys():
            theirs = accepted.child("properties", name)
            yield from deeper(_others(sent), theirs, below(path, name))


def _unnamed(sent: Node, path: str) -> Iterator[tuple[str, Node]]:
    for pattern in sent.get("patternProperties", {}):
        yield f"{path}{{{pattern}}}", sent.child("patternProperties", pattern)
    if _others(sent).schema is not False:
        yield f"{path}{{}}", _others(sent)


def _beside(ours: Node, accepted: Node, inside: str, deeper: Compare) -> Iterator[Problem | Pair]:
    rest = _others(accepted)
    patterns = accepted.get("patternProperties", {})
    pattern = ours.pointer.rpartition("/patternProperties/")[2]
    same = [each for each in patterns if inside.endswith(f"{{{each}}}") and pattern]
    readers = [accepted.child("patternProperties", each) for each in same] or [
        rest,
        *(accepted.child("patternProperties", each) for each in patterns),
    ]
    for theirs in readers:
        if theirs.schema is False:
            yield Problem.of(
                "unknown", inside, ours, accepted, found="a value", expected="no such member"
            )
        else:
            yield from deeper(ours, theirs, inside)


def _names(sent: Node, accepted: Node, path: str, deeper: Compare) -> Iterator[Problem | Pair]:
    if accepted.get("propertyNames") is None:
        return
    text = Node({"type": "string"}, sent.pointer, sent.document)
    ours = text if sent.get("propertyNames") is None else sent.child("propertyNames")
    yield from deeper(ours, accepted.child("propertyNames"), f"{path}{{name}}")


def _pointer(node: Node, name: str) -> str:
    return node.child("properties", name).pointer if name in node.properties else node.pointer
