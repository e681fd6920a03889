"""Do two schemas say the same? References are followed; what only people read is left out.

Both may refer to themselves, and to the same thing from many places: every two places are laid side
by side once, so that the work grows with the schemas and not with the ways through them.
"""

import json
from typing import Any, TypeAlias

from filaviva.evolution.nodes import ANNOTATIONS, LITERAL, MAPS, Node, resolved

_Places: TypeAlias = set[tuple[str, str]]


def alike(one: Node, other: Node) -> bool:
    """Tell whether they take the same values, as far as they say it in the same words."""
    return _alike(one, other, set())


def keyword_alike(one: Node, other: Node, keyword: str) -> bool:
    """Tell it of what both say under one keyword."""
    return _under(one, other, (keyword,), set())


def _alike(one: Node, other: Node, begun: _Places) -> bool:
    one, other = resolved(one), resolved(other)
    places = (one.place, other.place)
    # What is being compared already is alike, unless the rest says no: then all of it is unlike.
    if places in begun:
        return True
    begun.add(places)
    if not isinstance(one.schema, dict) or not isinstance(other.schema, dict):
        return bool(one.schema == other.schema)
    keywords = one.schema.keys() - ANNOTATIONS
    return keywords == other.schema.keys() - ANNOTATIONS and all(
        _under(one, other, (keyword,), begun) for keyword in keywords
    )


def _under(one: Node, other: Node, parts: tuple[str | int, ...], begun: _Places) -> bool:
    ours, theirs = one.child(*parts), other.child(*parts)
    left, right = ours.schema, theirs.schema
    if parts[-1] in LITERAL and len(parts) == 1:
        return _written(left) == _written(right)
    if parts == ("required",):
        return sorted(left) == sorted(right)
    if parts[0] in MAPS and len(parts) == 1:
        return left.keys() == right.keys() and all(
            _under(one, other, (*parts, name), begun) for name in left
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return _alike(ours, theirs, begun)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            _under(one, other, (*parts, number), begun) for number in range(len(left))
        )
    return _written(left) == _written(right)


def _written(value: Any) -> str:
    """Write it as JSON, where 1 and true are two."""
    return json.dumps(value, sort_keys=True)
