"""What becomes of the times of a schedule that have come: fired, kept waiting, or skipped.

Before: times that have come, others that wait already, and how the job before is. After: a plan.
May happen twice: the same question has the same answer.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from filaviva.cron import MOST_MISSED, Overlap

_SOONEST: Final = timedelta(seconds=1)
_LATEST: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with each time; `left_out` are too many to wait."""

    fire: tuple[datetime, ...] = ()
    wait: tuple[datetime, ...] = ()
    skip: tuple[datetime, ...] = ()
    left_out: int = 0

    def without(self, refused: Collection[datetime]) -> "Plan":
        """Keep the refused ones waiting, before those that come later."""
        fire = tuple(at for at in self.fire if at not in refused)
        return _bounded(replace(self, fire=fire, wait=(*sorted(refused), *self.wait)))


def plan(
    come: Sequence[datetime], *, waiting: Sequence[datetime], overlap: Overlap, busy: bool
) -> Plan:
    """Decide about the times that have come; `busy`: the job of the last firing has not ended."""
    times = (*waiting, *come)
    match overlap:
        case "allow":
            return Plan(fire=times)
        case "queue":
            return _bounded(Plan(wait=times) if busy else Plan(fire=times[:1], wait=times[1:]))
        case "skip" if busy:
            return Plan(skip=times)
        case "skip":
            return Plan(fire=times[:1], skip=times[1:])
        case _:
            assert_never(overlap)


def look_again(waiting: Sequence[datetime], *, now: datetime, pause: float = 0.0) -> datetime:
    """Say when to see about those that wait: the longer they have, the more rarely."""
    soon = max((now - waiting[0]) / 10, _SOONEST, timedelta(seconds=pause))
    return now + min(soon, _LATEST)


def _bounded(made: Plan) -> Plan:
    extra = max(0, len(made.wait) - MOST_MISSED)
    return replace(made, wait=made.wait[:MOST_MISSED], left_out=made.left_out + extra)
