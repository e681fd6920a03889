"""Which deliveries of one channel are settled, and how to tell the broker with few frames.

A multiple ack costs the broker a quarter of single ones, but it must never reach past a delivery
that is still open (its redelivery would be lost), nor end at one that was settled before (the
broker closes the channel).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Ack:
    """Settle this delivery; with `multiple` also every open one before it."""

    tag: int
    multiple: bool


@dataclass(frozen=True, slots=True)
class Reject:
    """Give this delivery back: to the queue, counted, or to the dead letters."""

    tag: int
    requeue: bool


Settlement: TypeAlias = Ack | Reject


class AckLedger:
    """The deliveries of one channel object; their tags die with it."""

    def __init__(self) -> None:
        self._open: dict[int, None] = {}  # in the order of delivery
        self._settled: set[int] = set()
        self._rejected: list[Reject] = []

    def __len__(self) -> int:
        """Count what the broker still waits for."""
        return len(self._open)

    @property
    def dirty(self) -> bool:
        """Tell whether there is something to say to the broker."""
        return bool(self._settled or self._rejected)

    @property
    def unsettled(self) -> int:
        """Count what nobody here has settled yet."""
        return len(self._open) - len(self._settled)

    def open_since(self, tag: int) -> int:
        """Count what the broker still waits for, from this tag on."""
        return sum(1 for other in self._open if other >= tag)

    def delivered(self, tag: int) -> None:
        """Enter a delivery."""
        self._open[tag] = None

    def settle(self, tag: int) -> bool:
        """Note that the delivery may be acked; False if it was settled before."""
        if tag not in self._open or tag in self._settled:
            return False
        self._settled.add(tag)
        return True

    def reject(self, tag: int, *, requeue: bool) -> bool:
        """Note that the delivery is given back; False if it was settled before."""
        if tag not in self._open or tag in self._settled:
            return False
        del self._open[tag]
        self._rejected.append(Reject(tag, requeue))
        return True

    def take(self) -> list[Settlement]:
        """Give what must be told now, in this order, and count it as told."""
        told: list[Settlement] = list(self._rejected)
        self._rejected.clear()
        told.extend(self._acks())
        return told

    def _acks(self) -> Iterator[Ack]:
        head = list(takewhile(self._settled.__contains__, self._open))
        if head:
            yield Ack(head[-1], multiple=len(head) > 1)
        rest = sorted(self._settled.difference(head))
        for tag in rest:
            yield Ack(tag, multiple=False)
        for tag in (*head, *rest):
            del self._open[tag]
        self._settled.clear()
