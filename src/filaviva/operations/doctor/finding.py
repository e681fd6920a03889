"""What the doctor found about one thing, what should be there, and what to do about it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "attention", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis: `attention` waits for a person, `wrong` stands in the way of work.

    `unknown` could not be looked at; the next step says what that needs.
    """

    check: str
    level: Level
    found: str
    next_step: str | None = None
    expected: str | None = None
    group: str | None = None


def ok(check: str, found: str) -> Finding:
    """Say that all is well."""
    return Finding(check, "ok", found)


def attention(check: str, found: str, next_step: str, *, expected: str | None = None) -> Finding:
    """Say that a person should look when there is time."""
    return Finding(check, "attention", found, next_step, expected)


def wrong(check: str, found: str, next_step: str, *, expected: str | None = None) -> Finding:
    """Say that something stands in the way of work."""
    return Finding(check, "wrong", found, next_step, expected)


def unknown(check: str, found: str, next_step: str, *, expected: str | None = None) -> Finding:
    """Say that this could not be looked at."""
    return Finding(check, "unknown", found, next_step, expected)
