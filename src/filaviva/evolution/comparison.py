"""Compare two schemas of one contract version: every change, with its verdict both ways."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, Final

from filaviva.evolution.change import Change
from filaviva.evolution.inclusion import Inclusion
from filaviva.evolution.likeness import alike
from filaviva.evolution.nodes import Document, Node, resolved
from filaviva.evolution.objects import below
from filaviva.evolution.problems import Pair, Problem, said

_ABSENT: Final = object()
_NEW: Final = "is new"
_GONE: Final = "is gone"
# With hundreds of new members, trying each with each that went would take minutes.
_LOOKED_AT: Final = 10
_NARROWER: Final = ("narrower", "wider", "different")
_WORDS: Final[Mapping[str, tuple[str, str, str]]] = {
    # only what was sent before is refused; only what is sent now is refused; both
    "required": ("is required now", "is not required any more", "is required elsewhere"),
    "unknown": ("is gone", "is new where nothing unknown was taken", "is another member"),
    "type": ("takes fewer types", "takes more types", "has another type"),
    "member": ("has lost a member", "has a new member", "has other members"),
    "values": ("has fewer values", "has more values", "has other values"),
}


def compare(old: dict[str, Any], new: dict[str, Any], *, edge: bool = True) -> tuple[Change, ...]:
    """Find every change from what was released to what the code says.

    `edge`: what is sent passes a strict edge (job data, events over HTTP), which refuses a member
    that is gone; without one (results, our own messages) readers ignore it.
    """
    before, now = Document(old), Document(new)
    if not edge:
        before, now = before.closed, now.closed
    reading = now if edge else now.opened
    backward = Inclusion().compare(before.node, reading.node)
    forward = Inclusion().compare(now.node, before.opened.node)
    pairs = [each for each in backward if isinstance(each, Pair)]
    renamed = {(pair.path, *names) for pair in pairs for names in _renamed(pair)}
    found = {**_differences(pairs, renamed)}
    moved = {below(path, name) for path, *names in renamed for name in names}
    for problem, is_backward in _problems(backward, forward):
        if problem.path in moved and problem.kind in {"required", "unknown"}:
            continue
        gone = (problem.path, "unknown")
        key = gone if gone in found else (problem.path, problem.kind)
        found[key] = _joined(found.get(key), problem, is_backward=is_backward)
    return tuple(found[key] for key in sorted(found))


def _problems(backward: list[Any], forward: list[Any]) -> Iterator[tuple[Problem, bool]]:
    for found, is_backward in ((backward, True), (forward, False)):
        yield from ((each, is_backward) for each in found if isinstance(each, Problem))


def _joined(known: Change | None, problem: Problem, *, is_backward: bool) -> Change:
    backward = known.backward if known else None
    forward = known.forward if known else None
    if is_backward:
        backward = backward or _refused_now(problem)
    else:
        forward = forward or _refused_before(problem)
    if known and known.what in {_NEW, _GONE}:
        return replace(known, backward=backward, forward=forward)
    side = 2 if backward and forward else int(backward is None)
    words = _WORDS.get(problem.kind)
    return Change(
        kind=problem.kind,
        path=problem.path,
        pointer=problem.reader_pointer if is_backward else problem.writer_pointer,
        what=words[side] if words else f"{problem.kind} is {_NARROWER[side]}",
        backward=backward,
        forward=forward,
    )


def _refused_now(problem: Problem) -> str:
    match problem.kind:
        case "required":
            return "messages of before lack it, and it is required now"
        case "unknown":
            return "whoever still sends it is refused at the edge: over HTTP, in corrected replays"
        case _:
            return f"messages of before may have {problem.found}, it takes {problem.expected} now"


def _refused_before(problem: Problem) -> str:
    match problem.kind:
        case "required":
            return "messages of now may lack it, and readers of before require it"
        case _:
            found, expected = problem.found, problem.expected
            return f"messages of now may have {found}, readers of before take {expected}"


def _differences(
    pairs: list[Pair], renamed: set[tuple[str, str, str]]
) -> dict[tuple[str, str], Change]:
    """Find what no schema refuses, and what all the same may mean something else."""
    found = {}
    for pair in pairs:
        moved = {name for path, *names in renamed if path == pair.path for name in names}
        for change in (
            *_came_and_went(pair, moved),
            *_other_defaults(pair),
            *_renames(pair, renamed),
        ):
            found[change.path, change.kind] = change
    return found


def _came_and_went(pair: Pair, moved: set[str]) -> Iterator[Change]:
    before, now = pair.sent.properties, pair.accepted.properties
    for name in sorted((before.keys() ^ now.keys()) - moved):
        is_new = name in now
        node = (pair.accepted if is_new else pair.sent).child("properties", name)
        required = name in (pair.accepted if is_new else pair.sent).get("required", ())
        yield Change(
            kind=("required" if required else "optional") if is_new else "unknown",
            path=below(pair.path, name),
            pointer=node.pointer,
            what=_NEW if is_new else _GONE,
        )


def _other_defaults(pair: Pair) -> Iterator[Change]:
    required = {*pair.sent.get("required", ()), *pair.accepted.get("required", ())}
    for name in sorted(pair.sent.properties.keys() & pair.accepted.properties.keys() - required):
        old = pair.sent.child("properties", name)
        new = pair.accepted.child("properties", name)
        if _default(old) != _default(new):
            was, is_now = said(old, "default"), said(new, "default")
            left_out = "where it is left out,"
            yield Change(
                kind="default",
                path=below(pair.path, name),
                pointer=new.pointer,
                what=f"has another default: {is_now}, was {was}",
                backward=f"{left_out} they used to read {was}, and now {is_now}",
                forward=f"{left_out} readers of before read {was}, those of now {is_now}",
            )


def _default(node: Node) -> str:
    """Write a default so that 1 and true are two; a factory's empty list is an empty list."""
    found = node.get("default", _ABSENT)
    if found is _ABSENT:
        empty = {"array": "[]", "object": "{}"}
        return empty.get(resolved(node).kind, "none")
    return json.dumps(found, sort_keys=True)


def _renames(pair: Pair, renamed: set[tuple[str, str, str]]) -> Iterator[Change]:
    for path, old, new in renamed:
        if path == pair.path:
            yield Change(
                kind="renamed",
                path=below(path, new),
                pointer=pair.accepted.child("properties", new).pointer,
                what=f"looks like {old} under another name",
                backward=f"messages of before have it as {old}, which nobody reads any more",
                forward=f"readers of before look for {old}, which nobody sends any more",
            )


def _renamed(pair: Pair) -> Iterator[tuple[str, str]]:
    """Pair what went with what came and is the same but for its name."""
    before, now = pair.sent.properties, pair.accepted.properties
    came = [name for name in now if name not in before]
    for name in before:
        if name in now:
            continue
        same = [each for each in came[:_LOOKED_AT] if _are_alike(pair, name, each)]
        if same:
            best = max(same, key=lambda each: SequenceMatcher(None, name, each).ratio())
            came.remove(best)
            yield name, best


def _are_alike(pair: Pair, old: str, new: str) -> bool:
    before, now = pair.sent, pair.accepted
    was_required, is_required = old in before.get("required", ()), new in now.get("required", ())
    return was_required == is_required and alike(
        before.child("properties", old), now.child("properties", new)
    )
