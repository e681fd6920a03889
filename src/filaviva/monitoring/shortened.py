"""Alert rules for a drill that takes seconds: every window and wait in the same proportion."""

import re
from typing import Final

_WINDOW: Final = re.compile(r"\[(\d+)(s|m|h|d)\]")
_HELD: Final = re.compile(r"^(\s+for: )(\d+)(s|m|h|d)$", re.MULTILINE)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# A rate needs two scrapes.
_SHORTEST_MS: Final = 2000


def shortened(rules: str, share: float) -> str:
    """Give the text of a rules file with its times multiplied; thresholds stay as they are."""

    def window(found: re.Match[str]) -> str:
        return f"[{max(_milliseconds(found[1], found[2], share), _SHORTEST_MS)}ms]"

    def held(found: re.Match[str]) -> str:
        return f"{found[1]}{_milliseconds(found[2], found[3], share)}ms"

    return _HELD.sub(held, _WINDOW.sub(window, rules))


def _milliseconds(number: str, unit: str, share: float) -> int:
    return round(1000 * int(number) * _SECONDS[unit] * share)
