"""Refuse words that a filter does not know: a misspelt one must not look like an empty list."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, get_args

import typer

from filaviva.operations.words import DeadReason, GroupState, JobState, LetterState
from filaviva.outcome import ErrorClass

JOB_STATES: Final[tuple[str, ...]] = get_args(JobState)
GROUP_STATES: Final[tuple[str, ...]] = get_args(GroupState)
LETTER_STATES: Final[tuple[str, ...]] = get_args(LetterState)
DEAD_REASONS: Final[tuple[str, ...]] = get_args(DeadReason)
ERROR_CLASSES: Final[tuple[str, ...]] = get_args(ErrorClass)

Given = TypeVar("Given", str | None, list[str] | None)


def one_of(known: Sequence[str]) -> Callable[[Given], Given]:
    """Make an option's callback that refuses other words."""

    def check(given: Given) -> Given:
        for word in [given] if isinstance(given, str) else given or ():
            if word not in known:
                raise typer.BadParameter(f"found {word!r}, expected one of {', '.join(known)}")
        return given

    return check
