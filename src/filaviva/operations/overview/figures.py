"""What an overview holds: counts, and ages in seconds by the database's clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the viewer wants to see; nothing chosen is everything."""

    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    def queue(self, name: str) -> bool:
        """Tell whether a queue was chosen."""
        return not self.queues or name in self.queues

    def type(self, name: str | None) -> bool:
        """Tell whether a job type was chosen."""
        return not self.types or name in self.types


@dataclass(frozen=True, slots=True)
class Count:
    """So many; `more`: at least so many, a look reads no further; `about`: some seconds ago."""

    number: int
    more: bool = False
    about: bool = False

    def __str__(self) -> str:
        return f"{'~' if self.about else ''}{self.number:,}{'+' if self.more else ''}"

    def __add__(self, other: "Count") -> "Count":
        return Count(self.number + other.number, self.more or other.more, self.about or other.about)


NONE = Count(0)


@dataclass(frozen=True, slots=True)
class Oldest:
    """A job that has waited longest; `seconds` since it was due."""

    job_id: UUID
    queue: str
    type: str
    seconds: float
    attempt: int


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of one moment."""

    name: str
    waiting: Count = NONE
    oldest: Oldest | None = None
    overdue: Oldest | None = None  # its pause is over, and it has not begun
    paused: Count = NONE
    next_due: float | None = None  # in so many seconds
    parked: Mapping[str, Count] = field(default_factory=dict)  # by reason
    running: Count = NONE
    workers: int = 0
    draining: int = 0
    slots: int = 0
    letters: Count = NONE


@dataclass(frozen=True, slots=True)
class Running:
    """One job at work; the ages are of its attempt and of its step."""

    job_id: UUID
    queue: str
    type: str
    attempt: int
    worker: str
    seconds: float
    step: str | None
    step_seconds: float | None
    canceling: float | None  # asked to stop for so many seconds
    expired: float | None  # its lease has been over for so many seconds
    limit: float | None  # how long its handler may take


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker as its heartbeats tell of it."""

    id: str
    app: str | None
    queues: Sequence[str]
    slots: int
    busy: int
    release: str | None
    reads: Sequence[Mapping[str, Any]]
    up_seconds: float
    seen_seconds: float
    draining_seconds: float | None
    lately: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rate:
    """What happens on one queue with one type; jobs a second, dollars a minute."""

    queue: str
    type: str
    submitted: float = 0.0
    started: float = 0.0
    succeeded: float = 0.0
    retried: float = 0.0
    failed: float = 0.0
    canceled: float = 0.0
    died: float = 0.0
    usd_per_minute: float = 0.0

    @property
    def left(self) -> float:
        """Jobs that left the queue for good."""
        return self.succeeded + self.failed + self.canceled

    @property
    def usd(self) -> Decimal:
        """What the work costs a minute, to a hundredth of a cent."""
        return round(Decimal(self.usd_per_minute), 4)

    @property
    def failing(self) -> float | None:
        """Share of the attempts that failed; None where none ended."""
        ended = self.succeeded + self.failed + self.retried
        return (self.failed + self.retried) / ended if ended else None


@dataclass(frozen=True, slots=True)
class Cause:
    """A failure group with open letters."""

    group_id: UUID
    type: str | None
    reason: str
    code: str | None
    message: str
    letters: Count


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead letters that wait for a person."""

    by_type: Mapping[str | None, Count] = field(default_factory=dict)
    causes: Sequence[Cause] = ()
    oldest_id: UUID | None = None
    oldest_type: str | None = None
    oldest_seconds: float | None = None

    @property
    def open(self) -> Count:
        """All of them."""
        return sum(self.by_type.values(), NONE)


@dataclass(frozen=True, slots=True)
class Outbox:
    """The messages that are not confirmed yet."""

    pending: Count = NONE
    parked: int = 0
    oldest_id: int | None = None
    oldest_route: str | None = None
    oldest_seconds: float | None = None
    error: str | None = None
    turns_without_keeper: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything at one moment; `at` in seconds since 1970, by the database's clock."""

    at: float
    queues: Sequence[Queue]
    running: Sequence[Running]  # the longest first, not all of them
    expired: int  # leases that nobody frees
    workers: Sequence[Worker]
    rates: Sequence[Rate]
    letters: Letters
    outbox: Outbox
    services: Mapping[str, int] | None = None  # processes that are heard of; None: nobody tells
    types: Mapping[str, str] = field(default_factory=dict)  # the queue of each type

    def rate(self, queue: str | None = None) -> Rate:
        """Add up the rates of one queue, or all."""
        chosen = [each for each in self.rates if queue in (None, each.queue)]
        names = Rate.__dataclass_fields__.keys() - {"queue", "type"}
        sums = {name: sum(getattr(each, name) for each in chosen) for name in names}
        return Rate(queue or "", "", **sums)
