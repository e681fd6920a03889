"""What becomes of an arrival: one function decides it, from what PostgreSQL knows."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias
from uuid import UUID

from filaviva import canonical
from filaviva.errors import Flaw
from filaviva.events import NOBODY, Publishers
from filaviva_contracts.wire import told
from filaviva_dlq_handler.arrival import Arrival, DeadJob, DeadWakeUp, Foreign, Unreadable

# A job may be innocent: the broker also counts what waited beside a crashing one.
DELIVERY_LIMITS = 3
INVALID_DATA = "InvalidData"
CONTENT_MISSING = "ContentMissing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it is, locked, with the failure of its last attempt."""

    id: UUID
    tenant: str
    type: str
    version: int
    queue: str
    state: str
    epoch: int
    attempt: int
    delivery_limits: int
    parked_reason: str | None
    cost_usd: Decimal
    error: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class File:
    """A dead letter, and what of its job has to change with it."""

    reason: str
    error: dict[str, Any]
    job: Job | None = None
    change: Literal["none", "fail", "park"] = "none"
    type: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Reissue:
    """The job is innocent so far: the same wake-up again."""

    job: Job
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Park:
    """The job waits until the reason is gone; nobody needs to know."""

    job: Job
    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """There is nothing to do: counted, and silent."""

    cause: str


Verdict: TypeAlias = File | Reissue | Park | Close


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of contracts and of the workers that run now."""

    versions: Callable[[str], Collection[int]]
    flaws: Callable[[str, int, Any], Sequence[Flaw]]
    readable: Callable[[str, str, int], bool]  # queue, type, version
    publishers: Publishers = NOBODY


def judge(arrival: Arrival, job: Job | None, known: Knowledge) -> Verdict:
    """Decide what becomes of it."""
    match arrival.content:
        case DeadJob() as dead:
            return _dead_job(dead, job)
        case DeadWakeUp() as wake_up:
            return _dead_wake_up(wake_up, arrival, job, known)
        case Unreadable(reason, why):
            return File(reason, _error("invalid_input", "Undecodable", why))
        case Foreign() as foreign:
            return _foreign(foreign, arrival, known)


def _dead_job(dead: DeadJob, job: Job | None) -> Verdict:
    if job is None:
        return _nobodys(dead.job_id)
    if job.state != "failed" or job.epoch != dead.epoch:
        return Close("stale")
    return File(dead.reason, _of_job(job, dead.reason), job)


def _dead_wake_up(
    wake_up: DeadWakeUp, arrival: Arrival, job: Job | None, known: Knowledge
) -> Verdict:
    if job is None:
        return _nobodys(wake_up.job_id)
    if job.state != "queued" or job.epoch != wake_up.epoch or job.parked_reason is not None:
        return Close("stale")
    if arrival.unroutable:
        why = f"no queue is bound for {job.queue}: no worker that serves it was ever set up"
        error = _error("terminal", "QueueMissing", why)
        return File("unroutable", error, job, "park")
    if arrival.death.reason == "delivery_limit":
        return _limited(job)
    if arrival.death.reason == "rejected":
        return _rejected(job, known)
    return Reissue(job)


def _limited(job: Job) -> Verdict:
    if job.delivery_limits + 1 < DELIVERY_LIMITS:
        return Reissue(job, counted=True)
    why = f"the broker gave it up {DELIVERY_LIMITS} times: it seems to take its workers down"
    return File("delivery_limit", _error("lost", "DeliveryLimit", why), job, "fail")


def _rejected(job: Job, known: Knowledge) -> Verdict:
    if known.readable(job.queue, job.type, job.version):
        # A worker that cannot read it sent it back beside one that can: the sweeper wakes it.
        return Park(job, "unsupported_version")
    why = f"no running worker on {job.queue} reads {job.type} v{job.version}"
    error = _error("terminal", "UnsupportedVersion", why)
    return File("unsupported_version", error, job, "park")


def _foreign(foreign: Foreign, arrival: Arrival, known: Knowledge) -> File:
    # Forbidden first of all: what is filed for another reason may be sent again in our own name.
    reason, error = _forbidden(foreign, arrival, known) or _why(foreign, arrival, known)
    return File(reason, error, type=foreign.type, version=foreign.version)


def _forbidden(
    foreign: Foreign, arrival: Arrival, known: Knowledge
) -> tuple[str, dict[str, Any]] | None:
    event, user = foreign.event, arrival.user
    if event is None or known.publishers.may_name(user, event.tenant):
        return None
    why = known.publishers.refusal(user, event.tenant)
    return "forbidden", _error("refused", "TenantNotAllowed", why)


def _why(foreign: Foreign, arrival: Arrival, known: Knowledge) -> tuple[str, dict[str, Any]]:
    versions = known.versions(foreign.type) or told(foreign.type)
    if arrival.unroutable and not (versions and foreign.version not in versions):
        why = f"no queue is bound for {arrival.origin.routing_key}"
        return "unroutable", _error("terminal", "Unroutable", why)
    if arrival.death.reason == "delivery_limit":
        why = "the broker gave it up: it seems to take its workers down"
        return "delivery_limit", _error("lost", "DeliveryLimit", why)
    if not versions:
        why = f"no contract is called {foreign.type}"
        return "unknown_type", _error("invalid_input", "UnknownType", why)
    if foreign.version is None or foreign.version not in versions:
        there = ", ".join(map(str, sorted(versions)))
        why = f"found version {foreign.version} of {foreign.type}, published is {there}"
        return "unsupported_version", _error("invalid_input", "UnsupportedVersion", why)
    return "terminal", _refused(foreign, known.flaws)


def _refused(foreign: Foreign, check: Callable[[str, int, Any], Sequence[Flaw]]) -> dict[str, Any]:
    if foreign.dataref is not None:
        why = f"its content was not found at {foreign.dataref}: put it there, then replay"
        return _error("invalid_input", CONTENT_MISSING, why)
    flaws = check(foreign.type, foreign.version or 0, canonical.parse(foreign.data))
    if flaws:
        why = f"it does not fit its contract at {flaws[0].pointer or '/'}: {flaws[0].detail}"
        return _error("invalid_input", INVALID_DATA, why)
    return _error("terminal", "Rejected", "a worker refused the message")


def _nobodys(job_id: UUID) -> File:
    error = _error("invalid_input", "UnknownJob", f"there is no job {job_id} in this database")
    return File("unroutable", error)


_LAST_WORDS = {
    "expired": ("timeout", "Expired", "its deadline passed before it could finish"),
    "attempts_exhausted": ("unexpected", "AttemptsExhausted", "its attempts are used up"),
}


def _of_job(job: Job, reason: str) -> dict[str, Any]:
    if job.error.get("class"):
        return job.error
    return _error(*_LAST_WORDS.get(reason, ("unexpected", "Failed", f"it failed: {reason}")))


def _error(error_class: str, code: str, message: str) -> dict[str, Any]:
    return {"class": error_class, "code": code, "message": message}
