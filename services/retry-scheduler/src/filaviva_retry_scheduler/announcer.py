"""What follows a commit: rows to the relay, facts to the listener, changes to those who wait."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from filaviva.outbox import OutboxRow
from filaviva.relay import unhurried
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.facts import JobEnded, Listener, unheard
from filaviva_retry_scheduler.traced import follow

_ALONE: Final[Mapping[UUID, str]] = {}


def _nobody(_: Iterable[UUID]) -> None:
    """Tell no one."""


class Announcer:
    """Tell everybody concerned what has just been committed; a crash before costs only time."""

    def __init__(
        self,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        *,
        listener: Listener = unheard,
        changed: Callable[[Iterable[UUID]], None] = _nobody,
        hurry: Callable[[], None] = unhurried,
    ) -> None:
        self._hand_over = hand_over
        self._changed = changed
        self._hurry = hurry
        self.state = listener

    def announce(self, decided: Decided, hops: Mapping[UUID, str] = _ALONE) -> None:
        """Hand over, notify and state facts; to be called after the commit."""
        self._hand_over(follow(decided, hops))
        self._changed(decided.jobs)
        if any(isinstance(fact, JobEnded) for fact in decided.facts):
            self._hurry()  # who wants to be told of an end has a row that nobody hands over
        for fact in decided.facts:
            self.state(fact)
