"""POST /v1/jobs: keep a job and say where to follow it.

Before: a request. After: `202` for a job that is committed, or a problem and nothing stored.
May happen twice: yes, with the same Idempotency-Key it is the same job.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from prometheus_client import Counter
from starlette.requests import Request

from filaviva import canonical, tracestate, tracing
from filaviva.broker.topology import Topology
from filaviva.callbacks.urls import Rules
from filaviva.errors import Rejected
from filaviva.http import ExactResponse
from filaviva.http.auth import authenticated
from filaviva.http.bodies import beside, is_large, parsed, read_body
from filaviva.http.queries import refuse_unknown
from filaviva.operations.keys import Principal
from filaviva.operations.links import Links, rights
from filaviva.operations.submission import Origin, Submission, admit
from filaviva.operations.submit import Submitted, Submitter
from filaviva.registry import Registry
from filaviva.telemetry.metrics import Metrics
from filaviva.uses import Uses
from filaviva.violations import Violations
from filaviva_producer.contracts import notices
from filaviva_producer.idempotency import idempotency_key
from filaviva_producer.pressure import Pressure

_MANY = 50
_EXCHANGE = Topology().jobs
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


class Submitting:
    """The route; a plain one, since the framework's own parsing would cost more than the job."""

    def __init__(  # noqa: PLR0913 - its means
        self,
        submitter: Submitter,
        registry: Registry,
        pressure: Pressure,
        metrics: Metrics,
        *,
        max_data_bytes: int,
        uses: Uses | None = None,
        callbacks: Rules | None = None,
        links: Links | None = None,
    ) -> None:
        self._submitter = submitter
        self._registry = registry
        self._pressure = pressure
        self._count = Count(metrics)
        self._violations = Violations(metrics, registry)
        self._uses = uses
        self._links = links
        self._max_data_bytes = max_data_bytes
        self._callbacks = callbacks

    async def post(self, request: Request) -> ExactResponse:
        """Answer one request."""
        principal = await authenticated(request, "jobs:write")
        refuse_unknown(request, ())
        self._pressure.check()
        key = idempotency_key(request)
        body = await read_body(request)
        value = await parsed(request, body)
        large = is_large(body) or _jobs(value) > _MANY
        try:
            with self._violations.watched(*_contract(value)), tracing.creating(_EXCHANGE) as made:
                origin = Origin(principal, key, request.state.request_id, *_trace(request, made))
                kept = await self._keep(value, origin, large=large)
                if made.traceparent is not None:
                    made.tell(
                        job_id=kept.job_id,
                        type=self._known_type(value),
                        queue=self._queue(value),
                        jobs=_jobs(value),
                        duplicate=kept.duplicate,
                    )
        except Rejected:
            self._count(self._known_type(value), "rejected", _jobs(value))
            raise
        result = "duplicate" if kept.duplicate else "accepted"
        self._count(self._known_type(value), result, _jobs(value))
        told = notices(self._registry.find(*_contract(value)), self._registry)
        return _accepted(kept, self._page(kept, principal), told)

    def _page(self, kept: Submitted, principal: Principal) -> Mapping[str, str]:
        # Whoever has the page sees the result: a key that only submits must not get at it by that.
        if self._links is None or not principal.may("jobs:read"):
            return {}
        return {"statusPageUrl": self._links.of(kept.job_id, rights(principal))}

    async def _keep(self, value: Any, origin: Origin, *, large: bool) -> Submitted:
        try:
            submission = await self._admit(value, origin, large=large)
        except Rejected:
            earlier = await self._earlier(value, origin, large=large)
            if earlier is None:
                raise
            return earlier
        kept = await self._submitter.submit(submission)
        if self._uses is not None and not kept.duplicate:
            sender = f"key:{origin.principal.key_id}"
            self._uses.count(submission.type, submission.version, sender, _jobs(value))
        return kept

    async def _admit(self, value: Any, origin: Origin, *, large: bool) -> Submission:
        check = partial(
            admit,
            value,
            origin,
            self._registry,
            max_data_bytes=self._max_data_bytes,
            callbacks=self._callbacks,
        )
        # Thousands of items take their time: everybody else's requests must not wait for them.
        return await beside(check, large=large)

    async def _earlier(self, value: Any, origin: Origin, *, large: bool) -> Submitted | None:
        # What was accepted once is the same job for ever, even if its contract has changed since.
        tenant, key = origin.principal.tenant, origin.idempotency_key
        if not isinstance(value, dict) or not origin.principal.may_use(str(value.get("type"))):
            return None
        fingerprint = await beside(lambda: canonical.fingerprint(value), large=large)
        return await self._submitter.find(tenant, key, fingerprint)

    def _queue(self, value: Any) -> str:
        found = self._registry.find(*_contract(value))
        return found.queue or "" if found is not None else ""

    def _known_type(self, value: Any) -> str:
        # Only registered types become labels: a client must not invent metrics.
        found = value.get("type") if isinstance(value, dict) else None
        known = isinstance(found, str) and self._registry.find(found) is not None
        return str(found) if known else "unknown"


class Count:
    """filaviva_jobs_submitted_total, with its children kept."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._children: dict[tuple[str, str], Counter] = {}

    def __call__(self, job_type: str, result: str, jobs: int) -> None:
        """Count the jobs of one submission: the items of a batch."""
        child = self._children.get((job_type, result))
        if child is None:
            child = self._metrics.jobs_submitted.labels(job_type, "http", result)
            self._children[job_type, result] = child
        child.inc(jobs)


def _contract(value: Any) -> tuple[Any, Any]:
    return (value.get("type"), value.get("version")) if isinstance(value, dict) else (None, None)


def _jobs(value: Any) -> int:
    items = value.get("items") if isinstance(value, dict) else None
    return len(items) if isinstance(items, list) else 1


def _trace(request: Request, made: Any) -> tuple[str | None, str | None]:
    """Give the traceparent and the tracestate under which the job is made."""
    if made.traceparent is not None:
        return made.traceparent, made.tracestate
    found = request.headers.get("traceparent", "")
    traceparent = found if _TRACEPARENT.fullmatch(found) else None
    return traceparent, tracestate.beside(traceparent, tracestate.of(request.headers))


def _accepted(kept: Submitted, page: Mapping[str, str], told: Mapping[str, str]) -> ExactResponse:
    address = f"/v1/jobs/{kept.job_id}"
    body = {
        "jobId": str(kept.job_id),
        "status": kept.status,
        "statusUrl": address,
        "eventsUrl": f"{address}/events",
        "cancelUrl": f"{address}/cancel",
        **page,
        "duplicate": kept.duplicate,
    }
    headers: Mapping[str, str] = {"Location": address, "Retry-After": "1", **told}
    if kept.duplicate:
        headers = {**headers, "Idempotent-Replayed": "true"}
    return ExactResponse(body, status_code=202, headers=headers)
