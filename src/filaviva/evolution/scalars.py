"""Strings and numbers: what a reader's limits refuse."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, Literal

from filaviva.evolution.nodes import Node
from filaviva.evolution.problems import Problem

KNOWN: Final = frozenset(
    {
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "contentEncoding",
        "contentMediaType",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "x-decimalPlaces",
        "x-maxDigits",
    }
)
# What has no meaning but for those who look at it.
_LOOKS: Final = frozenset({("format", "password")})
_SAME: Final = ("pattern", "format", "contentEncoding", "contentMediaType")


def strings(sent: Node, accepted: Node, path: str) -> Iterator[Problem]:
    """Compare two strings. Patterns and formats are taken as unlike unless they are the same."""
    yield from lengths(sent, accepted, path, "minLength", "maxLength")
    yield from decimals(sent, accepted, path)
    for keyword in _SAME:
        wanted = accepted.get(keyword)
        if wanted is None or (keyword, wanted) in _LOOKS or wanted == sent.get(keyword):
            continue
        yield Problem.of(keyword, path, sent, accepted, what=keyword)


def numbers(sent: Node, accepted: Node, path: str) -> Iterator[Problem]:
    """Compare two numbers, exactly."""
    yield from decimals(sent, accepted, path)
    for side in (_Side("minimum", "exclusiveMinimum", 1), _Side("maximum", "exclusiveMaximum", -1)):
        if not side.includes(sent, accepted):
            yield Problem.of(
                "range", path, sent, accepted, found=side.said(sent), expected=side.said(accepted)
            )
    step, taken = sent.get("multipleOf"), accepted.get("multipleOf")
    if step is None and sent.kind == "integer":
        step = 1
    if taken is not None and (step is None or exact(step) % exact(taken) != 0):
        yield Problem.of("multipleOf", path, sent, accepted, what="multipleOf")


def lengths(sent: Node, accepted: Node, path: str, least: str, most: str) -> Iterator[Problem]:
    """Compare two ranges of whole numbers."""
    if accepted.get(least, 0) > sent.get(least, 0):
        yield Problem.of(least, path, sent, accepted, what=least)
    limit, longest = accepted.get(most), sent.get(most)
    if limit is not None and (longest is None or longest > limit):
        yield Problem.of(most, path, sent, accepted, what=most)


def decimals(sent: Node, accepted: Node, path: str) -> Iterator[Problem]:
    """Compare how many digits a decimal may have: our own keywords, for JSON Schema has none."""
    for keyword in ("x-maxDigits", "x-decimalPlaces"):
        limit, most = accepted.get(keyword), sent.get(keyword)
        if limit is not None and (most is None or most > limit):
            yield Problem.of(keyword, path, sent, accepted, what=keyword)
    # Those after the point are kept free: where their number grows, fewer are left before it.
    digits, most = sent.get("x-maxDigits"), accepted.get("x-maxDigits")
    if digits is not None and most is not None and digits <= most:
        found, expected = _whole(sent), _whole(accepted)
        if found > expected:
            yield Problem.of(
                "wholeDigits",
                path,
                sent,
                accepted,
                found=_before(found),
                expected=_before(expected),
            )


def _whole(node: Node) -> int:
    return int(node.get("x-maxDigits")) - int(node.get("x-decimalPlaces", 0))


def _before(digits: int) -> str:
    return f"{digits} digits before the point"


def exact(number: Any) -> Fraction:
    """Take a number of a schema as it was written: 0.1 is a tenth."""
    return Fraction(str(number))


class _Side:
    """One end of a range of numbers."""

    def __init__(self, closed: str, open_: str, sign: Literal[1, -1]) -> None:
        self._closed = closed
        self._open = open_
        self._sign = sign

    def includes(self, sent: Node, accepted: Node) -> bool:
        wanted = self._end(accepted)
        found = self._end(sent)
        return wanted is None or (found is not None and found >= wanted)

    def _end(self, node: Node) -> tuple[Fraction, int] | None:
        """Give the end so that the greater one is the narrower one."""
        closed, open_ = node.get(self._closed), node.get(self._open)
        ends = [] if closed is None else [(exact(closed) * self._sign, 0)]
        if open_ is not None:
            ends.append(self._opened(node, exact(open_) * self._sign))
        return max(ends, default=None)

    def _opened(self, node: Node, end: Fraction) -> tuple[Fraction, int]:
        if node.kind == "integer" and end.denominator == 1:
            return end + 1, 0
        return end, 1

    def said(self, node: Node) -> str:
        for keyword in (self._closed, self._open):
            if node.get(keyword) is not None:
                return f"{keyword} {node.get(keyword)}"
        return f"no {self._closed}"
