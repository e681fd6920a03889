"""What a drill does, and how much of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from filaviva.drill.contract import POLICY

Kind: TypeAlias = Literal["before", "patient", "impatient", "late"]

TENANT: Final = "filaviva-drill"
# For what the alert rules are made: shorter cuts are seen by shorter windows, or not at all.
FULL_SECONDS: Final = 120.0
SHORTEST_SECONDS: Final = 4.0
LONGEST_SECONDS: Final = 1200.0
# As FilavivaPausesLate has it.
TOLERANCE_SECONDS: Final = 5.0

_IMPATIENT_ATTEMPTS: Final = 3
_SPARE_ATTEMPTS: Final = 12


@dataclass(frozen=True, slots=True)
class Jobs:
    """How many jobs of each kind."""

    before: int = 5  # while the provider is there
    patient: int = 20  # when it is cut
    impatient: int = 5  # then too, with few attempts
    late: int = 5  # in the middle of the cut

    @property
    def total(self) -> int:
        """All of them."""
        return self.before + self.patient + self.impatient + self.late


@dataclass(frozen=True, slots=True)
class Observers:
    """The platform's own Prometheus and Alertmanager, as far as they are named."""

    prometheus: str = ""
    alertmanager: str = ""


@dataclass(frozen=True, slots=True)
class Scraped:
    """A stack without observers: where its metrics are, and a folder for ours."""

    metrics: dict[str, list[str]]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One drill: where, for how long, with what."""

    database: str
    api: str
    host: str
    port: int
    author: str
    seconds: float = FULL_SECONDS
    observers: Observers = Observers()
    scraped: Scraped | None = None
    jobs: Jobs = field(default_factory=Jobs)
    patience: float = 20.0  # seconds for what must happen at once

    @property
    def share(self) -> float:
        """How long the windows of the rules are here, against those that are deployed."""
        return 1.0 if self.observers.prometheus else min(1.0, self.seconds / FULL_SECONDS)


def attempts(kind: Kind, seconds: float) -> int:
    """How many attempts a job of a kind has: one that waits has more than the cut lasts."""
    if kind == "impatient":
        return _IMPATIENT_ATTEMPTS
    return min(_SPARE_ATTEMPTS + int(seconds / POLICY.cap), 100)
