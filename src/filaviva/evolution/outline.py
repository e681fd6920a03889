"""The outline of a value: its types and shapes, and none of its contents.

What a contract itself says (the names of its members, the values of its enums) is kept, for it is
published anyway; every other name and every text, number and address is not.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from filaviva_contracts.exact import escaped

Outline: TypeAlias = "str | dict[str, Any]"

# What a text may be known to be; the others are shapes of characters.
FORMATS: Final[Mapping[str, re.Pattern[str]]] = {
    "uuid": re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    # Each part ends where the next begins: else a long text that is no address takes minutes.
    "email": re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+"),
    "uri": re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE),
}
OTHER: Final = "(other)"  # a name that is nobody's
_LONGEST: Final = 64
_ITEMS: Final = 5
_MOST: Final = 1000  # items that are made
_DEEPEST: Final = 20
_DIGITS: Final = re.compile(r"[0-9!-/:-@\[-`{-~]*[0-9][0-9!-/:-@\[-`{-~]*")


def vocabulary(schema: Any) -> frozenset[str]:
    """Collect what a schema itself says: names of members, values that are listed."""
    if isinstance(schema, list):
        return frozenset().union(*map(vocabulary, schema))
    if not isinstance(schema, dict):
        return frozenset()
    listed = [schema.get("const"), *schema.get("enum", ())]
    found = {each for each in listed if isinstance(each, str)}
    return frozenset(found | schema.get("properties", {}).keys()).union(
        *(vocabulary(inner) for key, inner in schema.items() if key not in {"default", "examples"})
    )


def outline(value: Any, words: frozenset[str], depth: int = 0) -> Outline:
    """Draw the outline of a JSON value."""
    if isinstance(value, dict | list):
        if depth >= _DEEPEST:
            return "deep"
        if isinstance(value, dict):
            return _object(value, words, depth)
        return _array(value, words, depth)
    if isinstance(value, str):
        return _text(value, words)
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    return {"number": re.sub("[0-9]", "9", f"{Decimal(str(value)):f}"[:_LONGEST])}


def _text(value: str, words: frozenset[str]) -> Outline:
    if value in words:
        return {"value": value}
    for name, pattern in FORMATS.items():
        if pattern.fullmatch(value):
            return {"format": name}
    if len(value) <= _LONGEST and _DIGITS.fullmatch(value):
        return {"mask": re.sub("[0-9]", "9", value)}
    return {"text": _about(len(value)), "of": "".join(sorted(set(map(_class, value))))}


def _class(character: str) -> str:
    if character.isspace():
        return " "
    if character.isalpha():
        return "a" if character.islower() else "A"
    return "9" if character.isdigit() else "."


def _array(value: list[Any], words: frozenset[str], depth: int) -> Outline:
    drawn = [outline(each, words, depth + 1) for each in value]
    return {"items": _unlike(drawn), "length": _about(len(value))}


def _object(value: dict[str, Any], words: frozenset[str], depth: int) -> Outline:
    members = {
        name: outline(inner, words, depth + 1) for name, inner in value.items() if name in words
    }
    others = [
        outline(inner, words, depth + 1) for name, inner in value.items() if name not in words
    ]
    return {"members": members, "others": _unlike(others)}


def _unlike(drawn: list[Outline]) -> list[Outline]:
    found: list[Outline] = []
    for each in drawn:
        if each not in found:
            found.append(each)
        if len(found) == _ITEMS:
            break
    return found


def _about(length: int) -> list[int]:
    """Give the powers of two that a length lies between."""
    least = 1 << (length.bit_length() - 1) if length else 0
    return [least, max(2 * least - 1, 0)]


def filled(drawn: Outline, *, high: bool) -> Any:
    """Make a value of this outline: its least, or its greatest."""
    if not isinstance(drawn, dict):
        return high if drawn == "boolean" else None
    match drawn:
        case {"value": value}:
            return value
        case {"number": mask}:
            return _number(mask, high=high)
        case {"items": items, "length": limits}:
            return [filled(each, high=high) for each in _repeated(items, limits[high])]
        case {"members": members, "others": others}:
            named = {**members, **{f"{OTHER}{n or ''}": each for n, each in enumerate(others)}}
            return {name: filled(inner, high=high) for name, inner in named.items()}
        case _:
            return _letters(drawn, high=high)


def _letters(drawn: dict[str, Any], *, high: bool) -> str:
    match drawn:
        case {"format": name}:
            return _LIKE[name][high]
        case {"mask": mask}:
            return _digits(mask, high=high)
        case {"text": limits, "of": classes}:
            letter = next((each for each in "aA9." if each in classes), " ")
            return letter * int(limits[high])
        case _:
            return ""


def unknown_texts(drawn: Outline, *, high: bool, where: str = "") -> Iterator[str]:
    """Give the pointers of texts of which nobody can say whether they fit a pattern."""
    if not isinstance(drawn, dict):
        return
    match drawn:
        case {"text": _} | {"format": _}:
            yield where
        case {"items": items, "length": limits}:
            for number, each in enumerate(_repeated(items, limits[high])):
                yield from unknown_texts(each, high=high, where=f"{where}/{number}")
        case {"members": members}:
            for name, inner in members.items():
                yield from unknown_texts(inner, high=high, where=f"{where}/{escaped(name)}")


def _repeated(items: list[Outline], times: int) -> list[Outline]:
    # A long array is of the shapes of its first items, again and again.
    return [items[number % len(items)] for number in range(min(times, _MOST))] if items else []


def _digits(mask: str, *, high: bool) -> str:
    if high:
        return mask
    first, more = mask.find("9"), mask.count("9") > 1
    least = mask.replace("9", "0")
    return f"{least[:first]}1{least[first + 1 :]}" if more else least


def _number(mask: str, *, high: bool) -> int | float:
    whole, point, fraction = mask.partition(".")
    text = _digits(whole, high=high)
    if not point:
        return int(text)
    return float(f"{text}.{fraction if high else fraction.replace('9', '0')}")


_LIKE: Final[Mapping[str, tuple[str, str]]] = {
    "uuid": ("018f0000-0000-7000-8000-000000000001", "ffffffff-ffff-4fff-bfff-ffffffffffff"),
    "date-time": ("2000-01-01T00:00:00Z", "2099-12-31T23:59:59.999999Z"),
    "date": ("2000-01-01", "2099-12-31"),
    "email": ("a@b.example", "somebody.else@mail.example.com"),
    "uri": ("https://a.example/", "https://a.example/somewhere/else?and=more"),
}
