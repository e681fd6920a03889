"""A submission: a request that has passed every check at the edge and may be stored.

Before: JSON as it came. After: a value to be stored as it is, or `Rejected` saying what is wrong
where. May happen twice: it has no effect.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

from filaviva import canonical
from filaviva.callbacks.urls import LONGEST, Rules, flaw
from filaviva.drill.contract import DrillCall
from filaviva.errors import Flaw, Rejected
from filaviva.operations import batch_request
from filaviva.operations.batch_request import MOST_ITEMS, Batch
from filaviva.operations.keys import Principal
from filaviva.registry import Registered, Registry

PRIORITIES: Final = {"high": 8, "normal": 4, "low": 0}
MAX_ATTEMPTS: Final = 100
MAX_LABELS: Final = 16
MOST_FLAWS: Final = 100  # that are told of one request

_NOT_YET = frozenset(("budgetUsd",))
NO_CALLBACKS = "callbacks are not set up here: FILAVIVA_CALLBACKS__SECRET is missing"
_OURS = "filaviva."
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?", re.ASCII)
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Who submits, under which key, as part of what."""

    principal: Principal
    idempotency_key: str
    correlation_id: str
    traceparent: str | None = None
    tracestate: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to be; `payload` and `labels` are JSON text, so that numbers stay exact."""

    tenant: str
    idempotency_key: str
    fingerprint: bytes
    type: str
    version: int
    queue: str
    payload: str
    max_attempts: int
    priority: int
    not_before: datetime | None
    deadline: datetime | None
    labels: str
    subject: str | None
    submitted_by: str | None
    correlation_id: str
    traceparent: str | None
    callback_url: str | None = None
    tracestate: str | None = None
    batch: Batch | None = None  # then `payload` is empty: each item has its own

    @property
    def jobs(self) -> int:
        """Count its jobs: the items of a batch, or itself."""
        return 1 if self.batch is None else len(self.batch.items)


def admit(
    value: Any,
    origin: Origin,
    registry: Registry,
    *,
    max_data_bytes: int = 256 * 1024,
    callbacks: Rules | None = None,
) -> Submission:
    """Check a request body and give what it asks for; without `callbacks` nobody is called back."""
    fields = _read(value)
    _check_callback(fields.get("callbackUrl"), callbacks)
    principal = origin.principal
    if not principal.may_use(fields["type"]):
        detail = f"the API key may not submit jobs of type {fields['type']}"
        raise Rejected("forbidden", detail, status=403)
    contract = _contract(fields["type"], fields.get("version"), registry, principal)
    batch, payload = None, "{}"
    if "items" in value:
        batch = batch_request.read(value, fields, contract, most_bytes=max_data_bytes)
    else:
        payload = canonical.dumps(value["data"])
        _check_size(payload, max_data_bytes)
        _check_data(contract, value["data"])
    return Submission(
        tenant=principal.tenant,
        idempotency_key=origin.idempotency_key,
        # Of the whole request, before defaults: a deploy may change what the default version is.
        fingerprint=canonical.fingerprint(value),
        type=contract.type,
        version=contract.version,
        queue=contract.queue or "",
        payload=payload,
        max_attempts=fields.get("maxAttempts", contract.policy.max_attempts),
        priority=PRIORITIES[fields.get("priority", "normal")],
        not_before=fields.get("runAt"),
        deadline=fields.get("deadline"),
        labels=canonical.dumps(fields.get("labels", {})),
        subject=fields.get("subject"),
        submitted_by=principal.key_id,
        correlation_id=origin.correlation_id,
        traceparent=origin.traceparent,
        tracestate=origin.tracestate,
        callback_url=fields.get("callbackUrl"),
        batch=batch,
    )


def _contract(
    job_type: str, version: int | None, registry: Registry, principal: Principal
) -> Registered:
    # What we submit ourselves is nobody else's to submit.
    ours = job_type.startswith(_OURS) and not _drilled(job_type, principal)
    found = None if ours else registry.find(job_type, version)
    if found is not None and found.queue is not None:
        return found
    if found is not None:
        detail = f"{job_type} v{found.version} is an event: publish it with POST /v1/events"
        raise Rejected("unknown_contract", detail, status=422, flaws=[Flaw("/type", detail)])
    versions = () if ours else registry.versions(job_type)
    if versions:
        known = ", ".join(map(str, versions))
        missing = "only deprecated versions" if version is None else f"no version {version}"
        detail = f"{job_type} has {missing}, there is: {known}"
        flaw = Flaw("/version", detail)
    else:
        theirs = [kind for kind in registry.types() if not kind.startswith(_OURS)]
        known = ", ".join(theirs[:50]) or "none yet (run filaviva setup)"
        detail = f"there is no type {job_type[:200]!r}, there is: {known}"
        flaw = Flaw("/type", detail)
    raise Rejected("unknown_contract", detail, status=422, flaws=[flaw])


def _drilled(job_type: str, principal: Principal) -> bool:
    """Tell whether it is the drill that asks, whose key is made for this type alone."""
    return job_type == DrillCall.contract_type and principal.types == frozenset((job_type,))


def _check_callback(url: str | None, rules: Rules | None) -> None:
    if url is None:
        return
    wrong = NO_CALLBACKS if rules is None else flaw(url, rules)
    if wrong is not None:
        raise _invalid([Flaw("/callbackUrl", wrong)])


def _check_size(payload: str, most: int) -> None:
    size = len(payload.encode())
    if size > most:
        detail = f"found {size} bytes of data, expected at most {most}; put large content elsewhere"
        raise Rejected("data_too_large", detail, status=413, flaws=[Flaw("/data", detail)])


def _check_data(contract: Registered, data: Any) -> None:
    flaws = [Flaw(f"/data{flaw.pointer}", flaw.detail) for flaw in contract.validate(data)]
    if flaws:
        first = f"{flaws[0].pointer}: {flaws[0].detail}"
        detail = f"data does not fit {contract.type} v{contract.version}: {first}"
        raise Rejected("invalid_data", detail, status=422, flaws=flaws)


def _read(value: Any) -> dict[str, Any]:
    """Give the fields with their checks passed (what is in data and items has its own)."""
    if not isinstance(value, Mapping):
        raise _invalid([Flaw("", f"found {_kind(value)}, expected an object")])
    unknown = (name for name in value if name not in _KNOWN)
    flaws = [_unknown(name) for name in islice(unknown, MOST_FLAWS)]
    if "type" not in value:
        flaws.append(Flaw("/type", "the field type is missing"))
    flaws += batch_request.misfits(value)
    fields = {}
    for name, check in _CHECKS.items():
        if name in value:
            try:
                fields[name] = check(value[name])
            except _Wrong as wrong:
                flaws.append(Flaw(f"/{name}{wrong.pointer}", str(wrong)))
    if "runAt" in fields and "deadline" in fields and fields["deadline"] <= fields["runAt"]:
        flaws.append(Flaw("/deadline", "the deadline is not after runAt"))
    if flaws:
        raise _invalid(flaws)
    return fields


def _unknown(name: str) -> Flaw:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    if name in _NOT_YET:
        return Flaw(pointer, f"{name} is not supported by this release")
    return Flaw(pointer, f"unknown field, expected: {', '.join(sorted(_KNOWN))}")


def _invalid(flaws: list[Flaw]) -> Rejected:
    detail = "; ".join(f"{flaw.pointer or 'body'}: {flaw.detail}" for flaw in flaws[:3])
    return Rejected("invalid_request", detail, status=422, flaws=flaws)


class _Wrong(Exception):
    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.pointer = pointer


def _text(most: int) -> Any:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= most:
            raise _Wrong(f"found {_kind(value)}, expected a string of 1 to {most} characters")
        return value

    return check


def _whole(least: int, most: int) -> Any:
    def check(value: Any) -> int:
        # true is an int in Python, but no number in JSON
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _Wrong(f"found {_kind(value)}, expected a whole number from {least} to {most}")
        return value

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"found {_kind(value)}, expected true or false")
    return value


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_ITEMS:
        found = f"{len(value)} items" if isinstance(value, list) else _kind(value)
        raise _Wrong(f"found {found}, expected a list of 1 to {MOST_ITEMS}, each one job's data")
    return value


def _priority(value: Any) -> str:
    if not isinstance(value, str) or value not in PRIORITIES:
        raise _Wrong(f"found {_kind(value)}, expected one of {', '.join(PRIORITIES)}")
    return value


def _moment(value: Any) -> datetime:
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        try:
            # Years that every time zone and PostgreSQL can hold.
            if "2000" <= value[:4] <= "9000":
                return datetime.fromisoformat(value.upper())
        except ValueError:
            pass
    detail = f"found {_kind(value)}, expected a time such as 2026-11-30T09:00:00Z (RFC 3339)"
    raise _Wrong(detail)


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > MAX_LABELS:
        raise _Wrong(f"found {_kind(value)}, expected an object with at most {MAX_LABELS} labels")
    for name, text in value.items():
        if not _LABEL.fullmatch(name):
            raise _Wrong(f"label {name[:80]!r}: expected 1 to 63 letters, digits or . _ / -")
        if not isinstance(text, str) or len(text) > 256:  # noqa: PLR2004 - said in the message
            detail = f"found {_kind(text)}, expected a string of at most 256 characters"
            raise _Wrong(detail, "/" + name.replace("/", "~1"))
    return dict(value)


_CHECKS: Final[Mapping[str, Any]] = {
    "type": _text(200),
    "version": _whole(1, 2**31 - 1),
    "priority": _priority,
    "runAt": _moment,
    "deadline": _moment,
    "maxAttempts": _whole(1, MAX_ATTEMPTS),
    "labels": _labels,
    "subject": _text(256),
    "callbackUrl": _text(LONGEST),
    "items": _items,
    "failFast": _flag,
    "maxFailures": _whole(0, MOST_ITEMS),
    "acceptPartial": _flag,
    "concurrency": _whole(1, MOST_ITEMS),
}
_KNOWN: Final = frozenset((*_CHECKS, "data"))


def _kind(value: Any) -> str:
    """Name what was found, without repeating much of it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return repr(value) if len(value) <= 40 else f"a string of {len(value)} characters"  # noqa: PLR2004
        case Mapping():
            return f"an object with {len(value)} members"
        case list():
            return "a list"
        case _:
            text = str(value)
            return text if len(text) <= 40 else "a very long number"  # noqa: PLR2004
