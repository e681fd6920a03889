"""Refuse words that a filter does not know: a misspelt one must not look like an empty list."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, get_args

import typer

from filaviva.handler import QUEUE
from filaviva.outcome import ErrorClass
from filaviva.tenants import EXPECTED, is_tenant
from filaviva.words import DeadReason, GroupState, JobState, LetterState

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


def tenant_name(given: str) -> str:
    """Refuse what no tenant can be called: an option's callback."""
    if not is_tenant(given):
        raise typer.BadParameter(f"found {given!r}, expected {EXPECTED}")
    return given


def queue_names(given: list[str] | None) -> list[str] | None:
    """Refuse what no handler's queue can be called: an option's callback."""
    for name in given or ():
        if not QUEUE.fullmatch(name):
            raise typer.BadParameter(
                f"found {name!r}, expected a lower-case letter, then up to 39 letters, digits, "
                "'_' or '-'"
            )
    return given
