"""Arrays: what a reader's items, lengths and uniqueness refuse."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from filaviva.evolution.nodes import Node
from filaviva.evolution.problems import Pair, Problem
from filaviva.evolution.scalars import lengths

KNOWN: Final = frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})

Compare = Callable[[Node, Node, str], "list[Problem | Pair]"]


def compare(sent: Node, accepted: Node, path: str, deeper: Compare) -> Iterator[Problem | Pair]:
    """Compare two arrays, place by place and then what follows."""
    yield from lengths(sent, accepted, path, "minItems", "maxItems")
    if accepted.get("uniqueItems") and not sent.get("uniqueItems"):
        yield Problem.of("uniqueItems", path, sent, accepted, what="uniqueItems")
    places = max(len(sent.get("prefixItems", ())), len(accepted.get("prefixItems", ())))
    for number in range(int(min(places, _longest(sent)))):
        yield from deeper(_item(sent, number), _item(accepted, number), f"{path}[{number}]")
    if _longest(sent) > places:
        yield from deeper(_item(sent, places), _item(accepted, places), f"{path}[]")


def _item(node: Node, number: int) -> Node:
    if number < len(node.get("prefixItems", ())):
        return node.child("prefixItems", number)
    if "items" in node.schema:
        return node.child("items")
    return Node(True, node.pointer, node.document)  # noqa: FBT003 - the schema of anything


def _longest(node: Node) -> float:
    most: Any = node.get("maxItems", float("inf"))
    if node.get("items") is False:
        most = min(most, len(node.get("prefixItems", ())))
    return float(most)
