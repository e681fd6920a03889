"""What a batch comes to, from the states of its items: a letter each, in their order.

Nothing is counted up: whatever happened twice or out of order, the letters are what is.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import simplejson

QUEUED, WAITING, RUNNING, STOPPING = "q", "w", "r", "x"  # waiting: for room in its batch
SUCCEEDED, FAILED, CANCELED = "s", "f", "c"
FINAL: Final = frozenset(("succeeded", "failed", "canceled"))

_STATUS: Final[Mapping[str, str]] = {
    QUEUED: "queued",
    WAITING: "queued",
    RUNNING: "running",
    STOPPING: "cancel_requested",
    SUCCEEDED: "succeeded",
    FAILED: "failed",
    CANCELED: "canceled",
}
_MESSAGES: Final[Mapping[str, str]] = {
    "en": "{succeeded} of {total} completed",
    "pt": "{succeeded} de {total} concluídos",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A locked batch and its items, as they are now."""

    id: UUID
    state: str
    canceling: bool  # asked to, since it last went on
    cost_usd: Decimal
    total: int
    accept_partial: bool | None
    fail_fast: bool
    max_failures: int | None
    concurrency: int | None
    forgiven: int
    told: str
    letters: str
    items_cost_usd: Decimal

    def count(self, *letters: str) -> int:
        """Count the items with one of these letters."""
        return sum(map(self.letters.count, letters))

    @property
    def to_be_canceled(self) -> bool:
        """Whether somebody asked to cancel what goes on; an earlier wish ended with its end."""
        return self.canceling and self.state not in FINAL

    @property
    def rests(self) -> bool:
        """Whether it has ended and nothing happened to its items since."""
        return self.state in FINAL and self.ended and self.letters == self.told

    @property
    def ended(self) -> bool:
        """Whether every item is final."""
        return self.count(SUCCEEDED, FAILED, CANCELED) == len(self.letters)

    @property
    def most_failures(self) -> int | None:
        """How many failures are not too many; None: any number."""
        return 0 if self.fail_fast else self.max_failures

    @property
    def pardoned(self) -> int:
        """How many failures do not count any more: all that were there when it went on."""
        return self.count(FAILED) if self.state in FINAL else self.forgiven

    @property
    def stops_because(self) -> str | None:
        """Why what is still to be done is to be stopped; None: it is not."""
        if not self.count(QUEUED, WAITING, RUNNING):
            return None
        if self.to_be_canceled:  # the cancel reached all but what was sent back meanwhile
            return "its batch is being canceled"
        most, failed = self.most_failures, self.count(FAILED) - self.pardoned
        return None if most is None or failed <= most else "too many items of its batch failed"

    @property
    def room(self) -> int:
        """How many waiting items may go now."""
        if self.concurrency is None or self.stops_because:
            return 0
        free = self.concurrency - self.count(QUEUED, RUNNING, STOPPING)
        return max(0, min(free, self.count(WAITING)))


def born(total: int, concurrency: int | None) -> str:
    """Give the letters of a new batch."""
    at_once = total if concurrency is None else min(total, concurrency)
    return QUEUED * at_once + WAITING * (total - at_once)


def state_of(batch: Batch) -> str:
    """Decide which state the batch is in."""
    if batch.rests:  # its items alone do not tell that it was canceled
        return batch.state
    if not batch.ended:
        return _open_state(batch)
    failed, canceled = batch.count(FAILED), batch.count(CANCELED)
    if not failed and not canceled:
        return "succeeded"
    if batch.to_be_canceled or canceled == len(batch.letters):
        return "canceled"
    return "succeeded" if batch.count(SUCCEEDED) and _partial_is_fine(batch) else "failed"


def _open_state(batch: Batch) -> str:
    if batch.to_be_canceled:
        return "cancel_requested"
    untouched = batch.count(QUEUED, WAITING) == len(batch.letters)
    return "queued" if batch.state == "queued" and untouched else "running"


def _partial_is_fine(batch: Batch) -> bool:
    if batch.accept_partial is not None:
        return batch.accept_partial
    # Who said how many failures are too many did not mean those to be fine.
    return batch.most_failures is None or batch.count(FAILED) <= batch.most_failures


def changes(told: str, letters: str) -> Iterator[tuple[int, str]]:
    """Give (index, status) of each item whose status is another than told."""
    for index, (before, now) in enumerate(zip(told, letters, strict=True)):
        if before != now and _STATUS[before] != _STATUS[now]:
            yield index, _STATUS[now]


def progress(letters: str) -> str:
    """Give the batch's progress, as JSON text."""
    counts = Counter(_STATUS[letter] for letter in letters)
    counted = {
        "total": len(letters),
        "succeeded": counts["succeeded"],
        "failed": counts["failed"],
        "canceled": counts["canceled"],
        "running": counts["running"] + counts["cancel_requested"],
        "queued": counts["queued"],
    }
    return str(simplejson.dumps({**counted, "message": message(counted)}))


def message(counted: Mapping[str, Any], language: str = "en") -> str:
    """Say how far a batch is, to a person."""
    return _MESSAGES[language].format(**counted)


def error(batch: Batch) -> dict[str, Any]:
    """Say why a batch failed."""
    failed, canceled = batch.count(FAILED), batch.count(CANCELED)
    parts = [f"{failed} of {len(batch.letters)} items failed"]
    if canceled:
        parts.append(f"{canceled} were canceled")
    return {
        "class": "terminal",
        "code": "ItemsFailed",
        "message": ", ".join(parts),
        "retryable": False,
    }
