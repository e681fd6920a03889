"""Tables and pages that fit a terminal of any size, and say what they had to leave out."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from filaviva.cli.output import printable

_GAP: Final = 2
_NARROWEST: Final = 8
_NOTE: Final = 5  # of columns that were left out
_CUT: Final = "…"
_INDENT: Final = "    "

# A heading, and below it the lines of each row.
Drawn: TypeAlias = tuple[Text, list[list[Text]]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; those of the highest `rank` are left out first.

    `least`: it may be cut to so many letters before another one is left out.
    """

    head: str
    align: Literal["left", "right"] = "right"
    rank: int = 0
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in one place, and how."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page: `rows` of a table; without columns each cell is a sentence."""

    title: str
    rows: Sequence[Sequence[Cell]]
    columns: Sequence[Column] = ()
    empty: str = ""  # said where there are no rows
    least: int = 1  # so many lines are shown before another part has more


def page(
    header: Sequence[Text], sections: Sequence[Section], width: int, height: int
) -> list[Text]:
    """Fit a page: what a terminal has no room for is counted or named where it would stand."""
    drawn = [_table(section, width) for section in sections]
    lines = [*header[:1], *(part for line in header[1:] for part in _wrapped(line, width))]
    room = max(0, height - len(lines))
    wants = [(each.least, sum(map(len, rows))) for each, (_, rows) in _both(sections, drawn)]
    shares = _shares(wants, room)
    for (head, rows), share in zip(drawn, shares, strict=False):
        lines += [head, *_cut_off(rows, share)]
    left_out = [each.title.lower() for each in sections[len(shares) :]]
    if left_out:
        lines[max(1, height) - 1 :] = [Text(f"{_CUT} no room for: {', '.join(left_out)}", "dim")]
    return [cut(line, width) for line in lines[: max(1, height)]]


def _wrapped(line: Text, width: int, *, indent: str = "") -> list[Text]:
    """What went wrong is told to its end: the next step stands there."""
    room = max(_NARROWEST, width)
    # A command stays in one piece as far as there is room.
    parts = textwrap.wrap(line.plain, room, subsequent_indent=indent, break_on_hyphens=False)
    return [Text(part, line.style) for part in parts]


def cut(line: Text, width: int) -> Text:
    """Cut a line that is too long, visibly."""
    if line.cell_len > width:
        line.truncate(max(1, width), overflow="ellipsis")
    return line


def _both(sections: Sequence[Section], drawn: Sequence[Drawn]) -> Iterable[tuple[Section, Drawn]]:
    return zip(sections, drawn, strict=True)


def _shares(wants: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Give the first parts a heading and their least, then what is left to whoever wants more.

    Parts for which not one row is left get nothing.
    """
    shares: list[int] = []
    for place, (least, rows) in enumerate(wants):
        wanted = min(least, rows)
        more_come = place + 1 < len(wants)
        share = min(wanted, room - 1 - more_come)
        if share < min(1, wanted):
            break
        shares.append(max(0, share))
        room -= 1 + shares[-1]
    room -= len(shares) < len(wants)  # to name the others
    for place, share in enumerate(shares):
        shares[place] += max(0, min(wants[place][1] - share, room))
        room -= shares[place] - share
    return shares


def _cut_off(rows: Sequence[Sequence[Text]], share: int) -> list[Text]:
    if sum(map(len, rows)) <= share:
        return [line for row in rows for line in row]
    shown: list[Text] = []
    whole = 0
    for row in rows:
        if len(shown) + len(row) >= share:
            break
        shown += row
        whole += 1
    shown = shown or [*rows[0][: share - 1]]
    return [*shown, Text(f"  {_CUT} {len(rows) - whole} more", "dim")]


def _table(section: Section, width: int) -> Drawn:
    """Draw a section: its heading, and the lines of its rows."""
    if not section.rows:
        return Text(f"{section.title}  {section.empty}".rstrip(), "bold"), []
    if not section.columns:
        return Text(section.title, "bold"), [_sentences(row, width) for row in section.rows]
    rows = [[Cell(_line(cell.text), cell.style) for cell in row] for row in section.rows]
    columns = [replace(section.columns[0], head=section.title), *section.columns[1:]]
    shown, widths = _fitted(columns, rows, width)
    head = _row([Cell(columns[place].head) for place in shown], columns, shown, widths)
    head.stylize("bold")
    if len(shown) < len(columns):
        head.append(f"  +{len(columns) - len(shown)}{_CUT}", "dim")
    return head, [[_row([row[p] for p in shown], columns, shown, widths)] for row in rows]


def _fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> tuple[list[int], dict[int, int]]:
    """Leave out columns until the rest fits when it is cut, then cut no more than needed."""
    widths = {
        place: max(cell_len(column.head), *(cell_len(row[place].text) for row in rows))
        for place, column in enumerate(columns)
    }
    least = {
        place: min(widths[place], column.least or widths[place])
        for place, column in enumerate(columns)
    }
    shown = list(range(len(columns)))

    def over(taken: Mapping[int, int]) -> int:
        note = 0 if len(shown) == len(columns) else _NOTE
        return sum(taken[place] for place in shown) + _GAP * (len(shown) - 1) + note - width

    while over(least) > 0 and len(shown) > 1:
        shown.remove(max(shown[1:], key=lambda place: (columns[place].rank, place)))
    for place in reversed(shown):
        widths[place] -= min(max(0, over(widths)), widths[place] - least[place])
    return shown, widths


def _row(
    cells: Sequence[Cell], columns: Sequence[Column], shown: Sequence[int], widths: dict[int, int]
) -> Text:
    line = Text()
    for number, (cell, place) in enumerate(zip(cells, shown, strict=True)):
        line.append(" " * (_GAP if number else 0))
        line.append(_padded(cell.text, widths[place], columns[place].align), style=cell.style)
    line.rstrip()
    return line


def _padded(text: str, width: int, align: str) -> str:
    if cell_len(text) > width:
        return f"{set_cell_size(text, max(0, width - 1))}{_CUT}"
    space = " " * (width - cell_len(text))
    return f"{space}{text}" if align == "right" else f"{text}{space}"


def _sentences(cells: Sequence[Cell], width: int) -> list[Text]:
    lines = [Text(_line(cell.text), style=cell.style) for cell in cells]
    return [part for line in lines for part in _wrapped(line, width, indent=_INDENT)]


def _line(text: str) -> str:
    """What others wrote stays on its line, and steers no terminal."""
    return printable(text).replace("\n", " ")
