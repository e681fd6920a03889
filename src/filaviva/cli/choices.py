"""Words that a filter knows: a misspelt one must not look like an empty list."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import typer

JOB_STATES: Final = ("queued", "running", "cancel_requested", "succeeded", "failed", "canceled")
GROUP_STATES: Final = ("open", "snoozed", "resolved")
LETTER_STATES: Final = ("open", "replaying", "resolved", "discarded")

Given = TypeVar("Given", str | None, list[str] | None)


def one_of(known: Sequence[str]) -> Callable[[Given], Given]:
    """Make an option's callback that refuses other words."""

    def check(given: Given) -> Given:
        for word in [given] if isinstance(given, str) else given or ():
            if word not in known:
                raise typer.BadParameter(f"found {word!r}, expected one of {', '.join(known)}")
        return given

    return check
