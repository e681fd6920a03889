"""Fair shares of one queue: the same for every tenant, and within a tenant by priority.

Each line (a tenant's jobs of one priority) has a pass, which grows by a stride for every turn it
is given; the smallest pass goes first. High priority has small strides, low priority large ones:
it gets less, and always something.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Name: TypeAlias = tuple[str, int]  # tenant, priority

_NORMAL = 4
_WEIGHTS = {"high": 16, "normal": 4, "low": 1}
CLASSES = tuple(_WEIGHTS)


@dataclass(frozen=True, slots=True)
class Offer:
    """Where a line stands before this round."""

    tenant: str
    priority: int
    start: float
    stride: float


@dataclass(slots=True)
class Shares:
    """Who has had how much of a queue."""

    _passes: dict[Name, float] = field(default_factory=dict)
    _now: float = 0.0

    def offers(self, lines: Iterable[Name]) -> Sequence[Offer]:
        """Say where these lines stand; a line that was not there joins those that had least."""
        waiting = sorted(set(lines))
        self._passes = {name: self._passes[name] for name in waiting if name in self._passes}
        if self._passes:
            self._now = max(self._now, min(self._passes.values()))
        for name in waiting:
            self._passes.setdefault(name, self._now)
        strides = _strides(waiting)
        return [Offer(*name, self._passes[name], strides[name]) for name in waiting]

    def took(self, offers: Iterable[Offer], counts: Mapping[Name, int]) -> None:
        """Count the turns that were given."""
        for offer in offers:
            name = (offer.tenant, offer.priority)
            self._passes[name] = offer.start + offer.stride * counts.get(name, 0)


def _strides(waiting: Sequence[Name]) -> dict[Name, float]:
    """A tenant's lines together advance as one line alone would: by one for each turn."""
    together: dict[str, int] = {}
    for tenant, priority in waiting:
        together[tenant] = together.get(tenant, 0) + _weight(priority)
    return {(t, priority): together[t] / _weight(priority) for t, priority in waiting}


def class_of(priority: int) -> str:
    """Name the class of a priority."""
    if priority > _NORMAL:
        return "high"
    return "normal" if priority == _NORMAL else "low"


def _weight(priority: int) -> int:
    return _WEIGHTS[class_of(priority)]
