"""What a command prints: tables and facts for people, JSON for programs."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import simplejson
import typer
from simplejson.raw_json import RawJSON

from filaviva.operations import shapes

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_WIDEST = 60
_NOTHING = ("-", "[]", "{}")


def show_json(content: Any) -> None:
    """Print one JSON document, its numbers exact."""
    compact = simplejson.loads(shapes.dumps(content), use_decimal=True)
    typer.echo(simplejson.dumps(compact, use_decimal=True, ensure_ascii=False, indent=2))


def show_list(
    items: Sequence[Mapping[str, Any]], columns: Sequence[str], *, following: str | None = None
) -> None:
    """Print rows under their headings; `following` is where the next page begins.

    Long cells are cut, except in the last column: it pushes nothing aside.
    """
    if not items:
        typer.echo("none")
        return
    *cut, last = columns
    cells = [[*map(_cell, map(item.get, cut)), _line(item.get(last))] for item in items]
    heads = [_head(column) for column in columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for line in (heads, *cells):
        shown = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        typer.echo("  ".join(shown).rstrip())
    if following is not None:
        typer.echo(f"more: --cursor {following}")


def show_page(
    items: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    following: str | None,
    json: bool,
) -> None:
    """Print one page of a list: for people, or as JSON the way HTTP gives it."""
    if json:
        show_json({"items": items, "next": following})
    else:
        show_list(items, columns, following=following)


def show_facts(content: Mapping[str, Any], *, without: Sequence[str] = ()) -> None:
    """Print one thing, a fact a line; what is not known is left out."""
    shown = {key: value for key, value in content.items() if key not in without}
    facts = {_head(key): _text(value) for key, value in shown.items()}
    facts = {name: text for name, text in facts.items() if text not in _NOTHING}
    width = max(map(len, facts), default=0)
    for name, text in facts.items():
        typer.echo(f"{name.ljust(width)}  {text}")


def ask(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; ends the command unless told to go on."""
    if not yes:
        typer.confirm(question, abort=True)


def _head(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def _line(value: Any) -> str:
    return " ".join(_text(value).split())


def _cell(value: Any) -> str:
    text = _line(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def printable(text: str) -> str:
    """Show what others wrote: nothing in it may steer the terminal of whoever reads it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else " " for each in text)


def _text(value: Any) -> str:
    return printable(_written(value))


def _written(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return str(round(value, 3))
        case RawJSON():
            return str(value.encoded_json)
        case dict() | list():
            return shapes.dumps(value)
        case _:
            return str(value)
