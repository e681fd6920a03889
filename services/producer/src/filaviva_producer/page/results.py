"""Show a result that any handler may have made to a person: as names and values, or as text.

Everything here is text; the template escapes it. Nothing in a result becomes a link or a style.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import simplejson

from filaviva_producer.page.words import Words

_LONGEST: Final = 20_000  # characters that are shown of one result
READ: Final = 4 * _LONGEST + 1  # and that are worth reading
_ROWS: Final = 40
_VALUE: Final = 500
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Shown:
    """A result: rows if it is flat, text otherwise; `cut`: there is more than that."""

    rows: Sequence[tuple[str, str]] = ()
    text: str = ""
    cut: bool = False


def shown(stored: str | None, words: Words) -> Shown | None:
    """Show JSON text as PostgreSQL gives it; None if there is nothing to be shown."""
    if stored is None or stored == "null":
        return None
    if len(stored) >= READ:
        return Shown(text=stored[:_LONGEST], cut=True)
    try:
        found = simplejson.loads(stored, use_decimal=True)
    except ValueError:  # from int(), which refuses thousands of digits
        return Shown(text=stored[:_LONGEST], cut=len(stored) > _LONGEST)
    if isinstance(found, dict) and 0 < len(found) <= _ROWS and all(map(_flat, found.values())):
        return Shown(rows=[(spoken(name), _value(value, words)) for name, value in found.items()])
    if _is_scalar(found):
        return Shown(text=_value(found, words))
    text = simplejson.dumps(found, use_decimal=True, indent=2, ensure_ascii=False)
    return Shown(text=text[:_LONGEST], cut=len(text) > _LONGEST)


def spoken(name: str) -> str:
    """Make a name of a program's a name for people: `totalAmount` is `Total amount`."""
    words = _HUMP.sub(" ", name).replace("_", " ").split()
    if not words:
        return name
    lowered = [one if one.isupper() else one.lower() for one in words]
    return " ".join([lowered[0][:1].upper() + lowered[0][1:], *lowered[1:]])


def _flat(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= _ROWS and all(map(_is_scalar, value))
    return _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _VALUE
    return not isinstance(value, Mapping | list)


def _value(value: Any, words: Words) -> str:
    if value is None or value in ("", []):
        return words.nothing
    if isinstance(value, bool):
        return words.yes if value else words.no
    if isinstance(value, list):
        return ", ".join(_value(one, words) for one in value)
    return str(value)
