"""What the journey left behind, collected once so that every fact is judged on the same."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from invoices.demo.truth import Stored

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Killing:
    """The worker that was killed, and the jobs it was about to store."""

    pid: int
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Notes:
    """What only the journey itself saw."""

    killing: Killing
    batch_when_two_were_dead: Json
    duplicate: Json
    second_replay_status: int


@dataclass(frozen=True, slots=True)
class Trail:
    """One document's job with all its attempts and steps."""

    job: Json
    attempts: tuple[Json, ...]
    steps: tuple[Json, ...]

    def outcomes(self) -> tuple[str, ...]:
        """Return how its attempts ended, those lost with their worker left out."""
        return tuple(a["outcome"] for a in self.attempts if a["outcome"] != "lost")

    def lost(self) -> tuple[Json, ...]:
        """Return the attempts that were lost with their worker."""
        return tuple(a for a in self.attempts if a["outcome"] == "lost")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the facts are checked against."""

    notes: Notes
    batch: Json
    trails: dict[str, Trail]
    calls: tuple[Json, ...]
    letters: tuple[Json, ...]
    stored: Stored
    alerts: tuple[str, ...] = field(default=())

    def charged(self, job_id: str | None = None) -> list[Json]:
        """Return the calls that were charged, of one job or of all."""
        return [
            call for call in self.calls if call["outputTokens"] and job_id in (None, call["jobId"])
        ]


def moment(text: str) -> datetime:
    """Read a time from the wire."""
    return datetime.fromisoformat(text)
