"""What keeps a reader from taking what a writer sends, in words."""

import json
from dataclasses import dataclass
from typing import Any, Final

from filaviva.evolution.nodes import Node
from filaviva.few import few

_SHOWN: Final = 12
_LONGEST: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that may be sent and is not taken."""

    kind: str
    path: str
    writer_pointer: str
    reader_pointer: str
    found: str
    expected: str

    @classmethod
    def of(  # noqa: PLR0913 - all of them are what is said
        cls,
        kind: str,
        path: str,
        sent: Node,
        accepted: Node,
        *,
        found: str | None = None,
        expected: str | None = None,
        what: str | None = None,
    ) -> "Problem":
        """Say it of two nodes; without words, of what each says under the keyword `what`."""
        if what is not None:
            found = found or said(sent, what)
            expected = expected or said(accepted, what)
        return cls(
            kind=kind,
            path=path,
            writer_pointer=sent.pointer,
            reader_pointer=accepted.pointer,
            found=found or described(sent),
            expected=expected or described(accepted),
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two objects that are the same thing to writer and reader."""

    path: str
    sent: Node
    accepted: Node


def said(node: Node, keyword: str) -> str:
    """Quote a keyword."""
    if node.get(keyword) is None:
        return f"no {keyword}"
    return f"{keyword} {shortened(node.get(keyword))}"


def listed(values: list[Any]) -> str:
    """Write values one after the other."""
    return few(values, _SHOWN, shortened)


def shortened(value: Any) -> str:
    """Write a value of a schema as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def described(node: Node) -> str:
    """Say what fits a branch."""
    if node.is_anything:
        return "any JSON"
    if node.values is not None:
        return node.kind if node.kind in {"boolean", "null"} else f"one of {listed(node.values)}"
    title = node.get("title")
    name = f" {title}" if node.kind == "object" and title else ""
    form = node.get("format")
    return f"{node.kind}{name}{f' of format {form}' if form else ''}"
