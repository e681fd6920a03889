"""File what arrived: inbox, jobs, groups, letters and alerts in one commit.

Before: messages of the dead letters, unacknowledged.
After: each is on record, or its job is back on its way; then they may be settled.
May happen twice: the inbox and the key (job, epoch) let the second one go.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection
from uuid_utils.compat import uuid7

from filaviva import failpoints, wakeups
from filaviva.canonical import storable
from filaviva.events import Event
from filaviva.operations import dead_letters, events, failure_groups
from filaviva.operations.dead_letters import NewLetter
from filaviva.operations.failure_groups import Cause
from filaviva.outbox import OutboxRow
from filaviva.tracing.told import Letter
from filaviva_dlq_handler import gate, job_rows
from filaviva_dlq_handler.arrival import Arrival, DeadJob, DeadWakeUp, Foreign
from filaviva_dlq_handler.judge import (
    CONTENT_MISSING,
    INVALID_DATA,
    Close,
    File,
    Job,
    Knowledge,
    Park,
    Reissue,
    Verdict,
    judge,
)

CHANNEL = "slack"


@dataclass(frozen=True, slots=True)
class Judged:
    """An arrival and what becomes of it."""

    arrival: Arrival
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Filed:
    """What was done: messages to hand over and facts to state, after the commit."""

    messages: Sequence[OutboxRow] = ()
    filed: Sequence[tuple[str, str]] = ()  # type, reason
    violations: Sequence[tuple[str | None, int | None, str]] = ()  # type, version, reason
    closed: Sequence[str] = ()  # causes
    failed: Sequence[str] = ()  # types
    jobs: frozenset[UUID] = field(default_factory=frozenset)
    reissued: int = 0
    letters: Sequence[Letter] = ()


async def file(connection: AsyncConnection, arrivals: Sequence[Arrival], known: Knowledge) -> Filed:
    """Put all of them on record in the caller's transaction."""
    since = time.time_ns()
    entered = await gate.enter(connection, arrivals)
    judged = await _judged(connection, entered, known)
    letters = _verdicts(judged, File)
    messages = await _change_jobs(connection, [one.verdict for one in judged])
    await _file_letters(connection, letters)
    failpoints.passing("dead.before_commit")
    closed = [verdict.cause for _, verdict in _verdicts(judged, Close)]
    return Filed(
        messages=messages,
        filed=[(_type(verdict) or "", verdict.reason) for _, verdict in letters],
        violations=[told for _, verdict in letters if (told := _violation(verdict)) is not None],
        closed=[*closed, *["duplicate"] * entered.duplicates],
        failed=[one.job.type for _, one in letters if one.job and one.change == "fail"],
        jobs=frozenset(job.id for one in judged if (job := _changed(one.verdict)) is not None),
        reissued=len(messages),
        letters=[_told(*one, since) for one in letters],
    )


def _told(arrival: Arrival, verdict: File, since: int) -> Letter:
    job, origin = verdict.job, arrival.origin
    return Letter(
        message_id=origin.message_id,
        exchange=origin.exchange or "",
        routing_key=origin.routing_key or "",
        queue=arrival.queue,
        hop=arrival.hop,
        since=since,
        reason=verdict.reason,
        type=_type(verdict),
        job_id=job.id if job else None,
        attempt=job.attempt if job else None,
        error_class=verdict.error.get("class"),
        error_code=verdict.error.get("code"),
    )


async def _judged(
    connection: AsyncConnection, entered: gate.Entered, known: Knowledge
) -> list[Judged]:
    arrivals = [*entered.first, *entered.reused]
    jobs = await job_rows.locked(connection, filter(None, map(_job_id, arrivals)))
    reused = await events.reused(
        connection, filter(None, (_event(arrival, known) for arrival in entered.first))
    )
    judged = [
        Judged(arrival, _event_reused(event))
        if (event := _event(arrival, known)) is not None and event in reused
        else _judge(arrival, jobs, known)
        for arrival in entered.first
    ]
    judged += [Judged(arrival, _REUSED) for arrival in entered.reused]
    return await _once_per_job(connection, judged)


def _judge(arrival: Arrival, jobs: dict[UUID, Job], known: Knowledge) -> Judged:
    job_id = _job_id(arrival)
    return Judged(arrival, judge(arrival, jobs.get(job_id) if job_id else None, known))


_REUSED = File(
    "id_reused",
    {
        "class": "invalid_input",
        "code": "IdReused",
        "message": "its message id was used for another message before",
    },
)


def _event(arrival: Arrival, known: Knowledge) -> Event | None:
    """Give the event that a worker has rejected, if it is one, and its publisher's to publish."""
    if arrival.death.reason != "rejected" or not isinstance(arrival.content, Foreign):
        return None
    event = arrival.content.event
    if arrival.content.dataref is not None:
        return None  # nobody here knows what it says
    if event is None or not known.publishers.may_name(arrival.user, event.tenant):
        return None
    return event


def _event_reused(event: Event) -> File:
    why = "another event was published under its source and id before"
    error = {"class": "invalid_input", "code": "IdReused", "message": why}
    return File("id_reused", error, type=event.type, version=event.version)


async def _once_per_job(connection: AsyncConnection, judged: Sequence[Judged]) -> list[Judged]:
    """Let one verdict a job stand, and none for an epoch whose letter is on record."""
    keys = [(job.id, job.epoch) for one in judged if (job := _changed(one.verdict)) is not None]
    done = set(await dead_letters.filed(connection, keys))
    kept = []
    for one in judged:
        job = _changed(one.verdict)
        if job is not None and (job.id, job.epoch) in done:
            kept.append(Judged(one.arrival, Close("duplicate")))
            continue
        if job is not None:
            done.add((job.id, job.epoch))
        kept.append(one)
    return kept


async def _change_jobs(
    connection: AsyncConnection, verdicts: Sequence[Verdict]
) -> Sequence[OutboxRow]:
    files = [one for one in verdicts if isinstance(one, File) and one.job is not None]
    parks = {one.job.id: one.reason for one in verdicts if isinstance(one, Park)}
    failing = {one.job.id: one.error for one in files if one.job and one.change == "fail"}
    parks |= {
        one.job.id: _PARKED.get(one.reason, one.reason)
        for one in files
        if one.job and one.change == "park"
    }
    again = [one for one in verdicts if isinstance(one, Reissue)]
    await job_rows.fail(connection, failing)
    await job_rows.park(connection, parks)
    await job_rows.count_limit(connection, {one.job.id for one in again if one.counted})
    return await wakeups.reissue(connection, [(one.job.id, one.job.epoch) for one in again])


_PARKED = {"unroutable": "queue_missing"}


async def _file_letters(
    connection: AsyncConnection, letters: Sequence[tuple[Arrival, File]]
) -> None:
    causes = [_cause(verdict) for _, verdict in letters]
    costs = [verdict.job.cost_usd if verdict.job else Decimal(0) for _, verdict in letters]
    groups = await failure_groups.record(connection, zip(causes, costs, strict=True))
    new = [
        _letter(arrival, verdict, groups[cause.fingerprint].id)
        for (arrival, verdict), cause in zip(letters, causes, strict=True)
    ]
    await dead_letters.file(connection, new)
    await failure_groups.announce(connection, groups.values(), channel=CHANNEL)


def _cause(verdict: File) -> Cause:
    error = verdict.error
    return Cause(
        type=_type(verdict),
        reason=verdict.reason,
        error_class=error.get("class"),
        error_code=error.get("code"),
        message=storable(error.get("message") or "", 4000),
        frames=tuple(error.get("frames") or ()),
    )


def _letter(arrival: Arrival, verdict: File, group_id: UUID) -> NewLetter:
    job = verdict.job
    if job is None:
        return NewLetter(
            id=uuid7(),
            reason=verdict.reason,
            group_id=group_id,
            type=verdict.type,
            version=verdict.version,
            error=verdict.error,
            origin=arrival.origin,
        )
    return NewLetter(
        id=uuid7(),
        reason=verdict.reason,
        group_id=group_id,
        job_id=job.id,
        epoch=job.epoch,
        tenant=job.tenant,
        type=job.type,
        version=job.version,
        error=verdict.error,
        attempts=job.attempt,
        cost_usd=job.cost_usd,
        origin=replace(arrival.origin, raw=None),  # ids alone: the job says more
    )


# What says that a message and its contract do not fit, and not that a job failed.
_VIOLATIONS = frozenset({"undecodable", "oversize", "unknown_type", "unsupported_version"})
_CODES = {INVALID_DATA: "invalid_data", CONTENT_MISSING: "content_missing"}


def _violation(verdict: File) -> tuple[str | None, int | None, str] | None:
    version = verdict.job.version if verdict.job else verdict.version
    if verdict.reason in _VIOLATIONS:
        return _type(verdict), version, verdict.reason
    reason = _CODES.get(str(verdict.error.get("code")))
    return None if reason is None else (_type(verdict), version, reason)


def _type(verdict: File) -> str | None:
    return verdict.job.type if verdict.job else verdict.type


def _changed(verdict: Verdict) -> Job | None:
    return None if isinstance(verdict, Close) else verdict.job


def _job_id(arrival: Arrival) -> UUID | None:
    match arrival.content:
        case DeadJob() | DeadWakeUp():
            return arrival.content.job_id
        case _:
            return None


def _verdicts(judged: Iterable[Judged], kind: type[Any]) -> list[tuple[Arrival, Any]]:
    return [(one.arrival, one.verdict) for one in judged if isinstance(one.verdict, kind)]
