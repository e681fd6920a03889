"""A schedule's definition: a request that has passed every check at the edge and may be stored.

Before: JSON as it came. After: a value to be stored as it is, or `Rejected` saying what is wrong
where. May happen twice: it has no effect.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, cast

from filaviva import canonical
from filaviva.callbacks.urls import Rules
from filaviva.cron import MISSED, OVERLAPS, Cron, Missed, Overlap
from filaviva.errors import Flaw, Rejected
from filaviva.operations.batch_request import POLICY
from filaviva.operations.keys import Principal
from filaviva.operations.submission import MAX_LABELS, MOST_FLAWS, Origin, Submission, admit
from filaviva.registry import Registry

CALENDAR: Final = ("name", "cron", "timeZone", "missed", "overlap", "enabled")
JOB: Final = (
    "type",
    "version",
    "data",
    "items",
    *POLICY,
    "priority",
    "maxAttempts",
    "labels",
    "subject",
    "callbackUrl",
)
DEFAULTS: Final[Mapping[str, Any]] = {
    "timeZone": "UTC",
    "missed": "once",
    "overlap": "allow",
    "enabled": True,
}
# Every job that a schedule submits carries it, with the schedule's name.
LABEL: Final = "schedule"

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Definition:
    """What is to be submitted, and when; `max_attempts` None: as the handler's policy says then."""

    name: str
    cron: Cron
    missed: Missed
    overlap: Overlap
    enabled: bool
    job: Submission
    max_attempts: int | None
    fingerprint: bytes
    policy: str | None  # of a batch, as JSON text

    @property
    def items(self) -> str | None:
        """Give the data of a batch's items as JSON text."""
        return None if self.job.batch is None else f"[{','.join(self.job.batch.items)}]"


def define(
    value: Any,
    principal: Principal,
    registry: Registry,
    *,
    max_data_bytes: int = 256 * 1024,
    callbacks: Rules | None = None,
) -> Definition:
    """Check a request body and give what it defines."""
    if not isinstance(value, Mapping):
        raise _invalid([Flaw("", "expected an object")])
    fields = {**DEFAULTS, **value}
    cron = _calendar(fields)
    body = {name: fields[name] for name in JOB if name in fields}
    origin = Origin(principal, LABEL, LABEL)
    job = admit(body, origin, registry, max_data_bytes=max_data_bytes, callbacks=callbacks)
    return Definition(
        name=fields["name"],
        cron=cron,
        missed=cast("Missed", fields["missed"]),
        overlap=cast("Overlap", fields["overlap"]),
        enabled=fields["enabled"],
        job=job,
        max_attempts=fields.get("maxAttempts"),
        fingerprint=canonical.fingerprint(value),
        policy=None if job.batch is None else canonical.dumps(_policy(fields)),
    )


def labels(definition: Definition) -> str:
    """Give the labels of its jobs as JSON text."""
    return canonical.dumps({**canonical.parse(definition.job.labels), LABEL: definition.name})


def _policy(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in POLICY if name in fields}


def _calendar(fields: Mapping[str, Any]) -> Cron:
    known = {*CALENDAR, *JOB}
    flaws = [
        Flaw(
            "/" + name.replace("~", "~0").replace("/", "~1"),
            f"unknown field, expected: {', '.join(sorted(known))}",
        )
        for name in islice((name for name in fields if name not in known), MOST_FLAWS)
    ]
    flaws += [flaw for name, check in _CHECKS.items() for flaw in _flaws(name, check, fields)]
    flaws += _too_many_labels(fields.get("labels"))
    if flaws:
        raise _invalid(flaws)
    try:
        return Cron.read(fields["cron"], fields["timeZone"])
    except ValueError as wrong:
        place = "/timeZone" if "time zone" in str(wrong) else "/cron"
        raise _invalid([Flaw(place, str(wrong))]) from None


def _too_many_labels(labels: Any) -> list[Flaw]:
    # With its own, its jobs would have one more than any job may have.
    if not isinstance(labels, Mapping) or len({*labels, LABEL}) <= MAX_LABELS:
        return []
    detail = f"found {len(labels)} labels, expected at most {MAX_LABELS - 1} besides {LABEL!r}"
    return [Flaw("/labels", detail)]


def _flaws(name: str, check: Callable[[Any], str | None], fields: Mapping[str, Any]) -> list[Flaw]:
    if name not in fields:
        return [Flaw(f"/{name}", f"the field {name} is missing")]
    expected = check(fields[name])
    found = repr(fields[name])
    shown = found if len(found) <= 60 else f"{len(found)} characters"  # noqa: PLR2004 - a line
    return [] if expected is None else [Flaw(f"/{name}", f"found {shown}, expected {expected}")]


def _name(value: Any) -> str | None:
    fits = isinstance(value, str) and _NAME.fullmatch(value)
    return None if fits else "1 to 63 letters, digits or . _ -, such as nightly-report"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a string"


def _missed(value: Any) -> str | None:
    return None if value in MISSED else f"one of {', '.join(MISSED)}"


def _overlap(value: Any) -> str | None:
    return None if value in OVERLAPS else f"one of {', '.join(OVERLAPS)}"


def _truth(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


_CHECKS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "name": _name,
    "cron": _text,
    "timeZone": _text,
    "missed": _missed,
    "overlap": _overlap,
    "enabled": _truth,
}


def _invalid(flaws: list[Flaw]) -> Rejected:
    detail = "; ".join(f"{flaw.pointer or 'body'}: {flaw.detail}" for flaw in flaws[:3])
    return Rejected("invalid_request", detail, status=422, flaws=flaws)
