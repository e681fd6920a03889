"""An overview as JSON has it: camelCase, durations in seconds, money as a decimal string."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from filaviva.operations.figures import moment, money
from filaviva.operations.overview.figures import (
    Cause,
    Count,
    Oldest,
    Overview,
    Queue,
    Rate,
    Running,
    Worker,
)
from filaviva.operations.overview.stuck import Depths, Stuck


def overview(seen: Overview, stuck: list[Stuck], depths: Depths | None) -> Mapping[str, Any]:
    """Give all of it; `atLeast` and `about` say how sure a count is."""
    letters, box = seen.letters, seen.outbox
    return {
        "at": moment(datetime.fromtimestamp(seen.at, UTC)),
        "stuck": [
            {"level": s.level, "where": s.where, "what": s.what, "nextStep": s.next_step}
            for s in stuck
        ],
        "queues": [_queue(each, seen.rate(each.name)) for each in seen.queues],
        "workers": [_worker(each) for each in seen.workers],
        "running": [_running(each) for each in seen.running],
        "rates": {
            "total": _rate(seen.rate()),
            "byType": [{"queue": r.queue, "type": r.type, **_rate(r)} for r in seen.rates],
        },
        "expiredLeases": seen.expired,
        "deadLetters": {
            "open": _count(letters.open),
            "oldestId": _id(letters.oldest_id),
            "oldestType": letters.oldest_type,
            "oldestSeconds": letters.oldest_seconds,
            "causes": [_cause(each) for each in letters.causes],
        },
        "outbox": {
            "pending": _count(box.pending),
            "parked": box.parked,
            "oldestId": box.oldest_id,
            "oldestRoute": box.oldest_route,
            "oldestSeconds": box.oldest_seconds,
            "error": box.error,
        },
        "services": seen.services,
        "broker": None
        if depths is None
        else {n: {"ready": d.ready, "consumers": d.consumers} for n, d in depths.items()},
    }


def _queue(queue: Queue, rate: Rate) -> Mapping[str, Any]:
    return {
        "queue": queue.name,
        "waiting": _count(queue.waiting),
        "oldest": _oldest(queue.oldest),
        "paused": _count(queue.paused),
        "nextDueSeconds": queue.next_due,
        "overdue": _oldest(queue.overdue),
        "parked": {reason: _count(count) for reason, count in queue.parked.items()},
        "running": _count(queue.running),
        "slots": queue.slots,
        "workers": queue.workers,
        "draining": queue.draining,
        "deadLetters": _count(queue.letters),
        **_rate(rate),
    }


def _rate(rate: Rate) -> Mapping[str, Any]:
    each = ("submitted", "started", "succeeded", "retried", "failed", "canceled", "died")
    return {
        **{f"{name}PerSecond": round(getattr(rate, name), 3) for name in each},
        "failingShare": None if rate.failing is None else round(rate.failing, 4),
        "usdPerMinute": money(rate.usd),
    }


def _worker(worker: Worker) -> Mapping[str, Any]:
    return {
        "worker": worker.id,
        "app": worker.app,
        "queues": list(worker.queues),
        "slots": worker.slots,
        "busy": worker.busy,
        "release": worker.release,
        "reads": list(worker.reads),
        "upSeconds": worker.up_seconds,
        "seenSeconds": worker.seen_seconds,
        "drainingSeconds": worker.draining_seconds,
    }


def _running(job: Running) -> Mapping[str, Any]:
    return {
        "jobId": str(job.job_id),
        "queue": job.queue,
        "type": job.type,
        "attempt": job.attempt,
        "worker": job.worker,
        "seconds": job.seconds,
        "step": job.step,
        "stepSeconds": job.step_seconds,
        "cancelingSeconds": job.canceling,
        "expiredSeconds": job.expired,
        "limitSeconds": job.limit,
    }


def _oldest(job: Oldest | None) -> Mapping[str, Any] | None:
    if job is None:
        return None
    return {
        "jobId": str(job.job_id),
        "type": job.type,
        "seconds": job.seconds,
        "attempt": job.attempt,
    }


def _cause(cause: Cause) -> Mapping[str, Any]:
    return {
        "group": str(cause.group_id),
        "type": cause.type,
        "reason": cause.reason,
        "code": cause.code,
        "message": cause.message,
        "deadLetters": _count(cause.letters),
    }


def _count(count: Count) -> Mapping[str, Any]:
    return {"number": count.number, "atLeast": count.more, "about": count.about}


def _id(value: object) -> str | None:
    return None if value is None else str(value)
