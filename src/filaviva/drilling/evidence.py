"""What a drill has seen, collected so that every fact is judged on the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from filaviva.drilling.plan import Kind
from filaviva.drilling.provider import Calls


@dataclass(frozen=True, slots=True)
class Submitted:
    """One job, submitted twice at once under one key; how many answers called it a duplicate."""

    kind: Kind
    number: int
    ids: frozenset[UUID]
    duplicates: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, as the database knows it."""

    job_id: UUID
    number: int
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    error_class: str | None
    pause_seconds: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """One pause: after the nth failure, as long as planned, and how late the next attempt began."""

    n: int
    planned: float
    late: float | None  # None: no attempt has followed yet


@dataclass(frozen=True, slots=True)
class Group:
    """One cause that jobs of the drill died of."""

    id: UUID
    letters: int
    state: str
    reason: str
    error_code: str | None


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a group, as the dlq-handler has it."""

    state: str
    tries: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Alert:
    """When the alert of the rules fired and was over, in Unix time; `why`: it was not looked at."""

    fired: float | None = None
    over: float | None = None
    why: str | None = None
    next_step: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What Alertmanager told Slack of it; `why`: that was not looked at."""

    firing: int = 0
    resolved: int = 0
    failed: int = 0
    where: str = ""
    why: str | None = None
    next_step: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a panel's query showed: the most in the cut, and what is left after it."""

    panel: str
    most: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Cut:
    """When the provider was away: by the database's clock, and by ours."""

    began: datetime
    ended: datetime
    since: float
    until: float
    calls: int  # that got through meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything the facts are checked against."""

    seconds: float
    cut: Cut
    submitted: Sequence[Submitted]
    states: Mapping[UUID, str]
    calls: Calls
    attempts: Sequence[Attempt]  # up to the replay: it gives a new allowance
    groups: Sequence[Group]
    notices: Sequence[Notice]
    slack: int | None  # messages that our stand-in got; None: it is somebody else's
    replayed: Mapping[str, int] = field(default_factory=dict)
    recovered: float | None = None  # seconds from the provider's return
    alert: Alert = Alert()
    told: Told = Told()
    seen: Sequence[Seen] = ()
    seen_why: str | None = None
    unsettled: int = 0  # what is left of the drill when everything is done

    def ids(self, *kinds: Kind) -> set[UUID]:
        """Give the jobs of these kinds; all of them if none are named."""
        wanted = [each for each in self.submitted if not kinds or each.kind in kinds]
        return {one for each in wanted for one in each.ids}


def pauses(attempts: Sequence[Attempt]) -> list[Pause]:
    """Give the pauses after failures of what the jobs called; others have other bounds."""
    found: list[Pause] = []
    failures: dict[UUID, int] = {}
    following = {(each.job_id, each.number): each for each in attempts}
    for each in sorted(attempts, key=lambda one: (one.job_id, one.number)):
        if each.outcome not in ("retry", "failed") or each.error_class == "lost":
            continue
        n = failures[each.job_id] = failures.get(each.job_id, 0) + 1
        if each.pause_seconds is None or each.finished_at is None:
            continue
        planned = each.finished_at + timedelta(seconds=each.pause_seconds)
        after = following.get((each.job_id, each.number + 1))
        late = None if after is None else (after.started_at - planned).total_seconds()
        found.append(Pause(n, each.pause_seconds, late))
    return found


def recovered(attempts: Sequence[Attempt], jobs: set[UUID], ended: datetime) -> float | None:
    """Give how long after the cut the last of these jobs succeeded; None if one has not."""
    done = {
        each.job_id: each.finished_at
        for each in attempts
        if each.job_id in jobs and each.outcome == "succeeded" and each.finished_at is not None
    }
    if not jobs or done.keys() != jobs:
        return None
    return max((max(done.values()) - ended).total_seconds(), 0.0)
