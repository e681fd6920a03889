"""Schedules as they look on the wire: for HTTP and for `--json` alike."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from filaviva import canonical
from filaviva.cron import Cron
from filaviva.operations.figures import moment
from filaviva.operations.schedules import PRIORITY_WORDS, Schedule
from filaviva.operations.shapes import raw

_SHOWN_TIMES: Final = 5


def schedule(found: Schedule) -> dict[str, Any]:
    """Give a schedule with its data, or its items, and its next times."""
    shown = {**summary(found), "data": None, "nextTimes": next_times(_cron(found))}
    if found.items is None:
        return {**shown, "data": raw(found.data)}
    return {**shown, "items": raw(found.items), **canonical.parse(found.batch or "{}")}


def summary(found: Schedule) -> dict[str, Any]:
    """Give a schedule as lists show it."""
    address = f"/v1/schedules/{found.id}"
    return {
        "scheduleId": str(found.id),
        "name": found.name,
        "cron": found.cron,
        "timeZone": found.time_zone,
        "missed": found.missed,
        "overlap": found.overlap,
        "enabled": found.enabled,
        "type": found.type,
        "version": found.version,
        "priority": PRIORITY_WORDS[found.priority],
        "maxAttempts": found.max_attempts,
        "labels": raw(found.labels),
        "subject": found.subject,
        "callbackUrl": found.callback_url,
        "nextFireAt": moment(found.next_fire_at) if found.enabled else None,
        "lastFiredAt": moment(found.last_fired_at),
        "lastJobId": None if found.last_job_id is None else str(found.last_job_id),
        "fired": found.fired,
        "skipped": found.skipped,
        "lastSkippedAt": moment(found.last_skipped_at),
        "waiting": len(found.waiting),
        "error": found.error,
        "submittedBy": found.submitted_by,
        "createdAt": moment(found.created_at),
        "updatedAt": moment(found.updated_at),
        "links": {"self": address, "jobs": f"/v1/jobs?label.schedule={found.name}"},
    }


def next_times(cron: Cron | None) -> list[str]:
    """Give the next five times, each with the offset that the zone's clocks will have then."""
    if cron is None:
        return []
    following = islice(cron.after(datetime.now(UTC)), _SHOWN_TIMES)
    return [at.astimezone(cron.zone).isoformat() for at in following]


def _cron(found: Schedule) -> Cron | None:
    try:
        return Cron.read(found.cron, found.time_zone)
    except ValueError:  # its `error` says so
        return None
