"""Name the first few of many, as a sentence does."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def few(
    found: Sequence[T],
    most: int,
    shown: Callable[[T], str] = str,
    *,
    between: str = ", ",
    last: str = " and",
) -> str:
    """Write the first ones, and how many more there are."""
    named = between.join(map(shown, found[:most]))
    return f"{named}{last} {len(found) - most} more" if len(found) > most else named
