"""What follows a commit: rows to the relay, facts to the listener, changes to those who wait."""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from filaviva.outbox import OutboxRow
from filaviva.relay import unhurried
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.facts import JobEnded, Listener, unheard


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

    def announce(self, decided: Decided) -> None:
        """Hand over, notify and state facts; to be called after the commit."""
        self._hand_over(decided.rows)
        self._changed(decided.jobs)
        if any(isinstance(fact, JobEnded) for fact in decided.facts):
            self._hurry()  # who wants to be told of an end has a row that nobody hands over
        for fact in decided.facts:
            self.state(fact)
