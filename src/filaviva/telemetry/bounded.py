"""Labels whose values users choose: the first so many are told apart, the rest is "other".

A step that is named after its page number must not make a series for every page of the world.
"""

from typing import Final

OTHER: Final = "other"
_LONGEST: Final = 100


class Bounded:
    """Remember the values that are told apart."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """Give the value, or "other" once there are too many, or where it is no name."""
        if value in self._known:
            return value
        if len(self._known) >= self._most or not 0 < len(value) <= _LONGEST:
            return OTHER
        self._known.add(value)
        return value
