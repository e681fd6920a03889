"""POST /v1/events: publish an event for those who have no AMQP.

Before: a request. After: `202` for one job per handler and a copy for other subscribers, all
committed; or a problem and nothing stored.
May happen twice: yes, the same event (its source and id) is the same jobs.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.responses import Response

from filaviva import canonical, events, tracestate, tracing
from filaviva.database.transaction import code, transact
from filaviva.errors import Flaw, Rejected
from filaviva.http import ExactResponse, allowed
from filaviva.http.bodies import json_body
from filaviva.operations.keys import Principal
from filaviva.operations.publication import EventJob, Published, publish
from filaviva.operations.quotas import Quotas
from filaviva.outbox import OutboxRow
from filaviva.registry import Registered, Registry
from filaviva.telemetry.metrics import Metrics
from filaviva.turns import Turns
from filaviva.uses import Uses
from filaviva.violations import Violations
from filaviva_contracts.envelope import Envelope
from filaviva_contracts.names import parse_wire_type, wire_type
from filaviva_producer import event_documents as documents
from filaviva_producer.contents import too_large
from filaviva_producer.contracts import notices
from filaviva_producer.idempotency import idempotency_key
from filaviva_producer.pressure import Pressure

SOURCE = "/v1/events"
_EXTENSION = re.compile(r"[a-z0-9]{1,20}", re.ASCII)
# Leaves room for what is added on the way, be it only where the data lies.
_ATTRIBUTES = events.LARGEST - 4 * 1024
_TOO_LARGE, _UNSTORABLE = "23514", "22"

Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Writer = Annotated[Principal, Depends(allowed("jobs:write"))]


class EventBody(BaseModel):
    """An event as it is sent: ours in short, or a CloudEvent (with `specversion`) as it is."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    data: Any
    version: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    id: Text | None = None
    source: Text | None = None
    subject: Text | None = None
    time: Annotated[AwareDatetime, Field(strict=False)] | None = None
    correlationid: Text | None = None
    traceparent: Text | None = None
    tracestate: Any = None  # an invalid one is dropped
    datacontenttype: Literal["application/json"] | None = None
    dataschema: Text | None = None
    specversion: Literal["1.0"] | None = None

    @model_validator(mode="after")
    def _extensions_of_a_cloud_event(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            fits = _EXTENSION.fullmatch(name) and isinstance(value, str | bool | int)
            if self.specversion is None or not fits:
                raise ValueError(f"found the unknown member {name[:40]!r}")
        return self

    @property
    def contract(self) -> tuple[str, int | None]:
        """Give the contract's type and version, however they are written."""
        named = parse_wire_type(self.type)
        return named or (self.type, self.version)

    def attributes(self, tenant: str) -> dict[str, Any]:
        """Give the envelope's attributes that are the publisher's to choose."""
        found = {"source": self.source or SOURCE, **(self.model_extra or {})}
        if self.subject is not None:
            found["subject"] = self.subject
        if self.time is not None:
            found["time"] = _written(self.time)
        return found | ({events.TENANT: tenant} if tenant != events.DEFAULT_TENANT else {})


# However it is written (six bytes for a letter), an event of the allowed size fits in.
_MOST_BYTES = 16 * events.LARGEST
Body = Annotated[EventBody, Depends(json_body(EventBody, most=_MOST_BYTES))]


@dataclass(frozen=True, slots=True)
class Publishing:
    """The route's means."""

    engine: AsyncEngine
    hand_over: Callable[[Sequence[OutboxRow]], None]
    registry: Registry
    pressure: Pressure
    metrics: Metrics
    turns: Turns | None = None
    quotas: Quotas | None = None
    uses: Uses | None = None
    max_data_bytes: int = 256 * 1024

    def router(self) -> APIRouter:
        """Give the route."""
        router = APIRouter(tags=["events"])
        router.add_api_route(
            "/v1/events",
            self.post,
            methods=["POST"],
            name="publishEvent",
            operation_id="publishEvent",
            status_code=202,
            **documents.PUBLISH,
        )
        return router

    async def post(self, request: Request, writer: Writer, body: Body) -> Response:
        """Publish an event: one job for each handler, and a copy for other subscribers."""
        self.pressure.check()
        with Violations(self.metrics, self.registry).watched(*body.contract):
            return await self._accept(request, writer, body)

    async def _accept(self, request: Request, writer: Principal, body: EventBody) -> Response:
        contract = _contract(body, writer, self.registry)
        identity = body.id or idempotency_key(request)
        traceparent, state = _trace(body, request)
        attributes = body.attributes(writer.tenant)
        if state is not None:
            attributes[tracestate.NAME] = state
        envelope = Envelope(
            id=identity,
            source=attributes["source"],
            type=wire_type(contract.type, contract.version),
            data=canonical.dumps(body.data),
            correlationid=body.correlationid or request.state.request_id,
            traceparent=traceparent,
        ).with_attributes(attributes)
        _check(envelope, contract, body, writer.tenant, self.max_data_bytes)
        published = await self._publish(envelope, attributes, body.data, writer)
        self.hand_over(published.rows)
        self._count(published.jobs)
        if self.uses is not None and not published.duplicate:
            self.uses.count(contract.type, contract.version, f"key:{writer.key_id}")
        return _accepted(identity, envelope, published, notices(contract, self.registry))

    async def _publish(
        self, envelope: Envelope, attributes: dict[str, Any], value: Any, writer: Principal
    ) -> Published:
        event = replace(events.read(envelope), tenant=writer.tenant)

        async def work(connection: AsyncConnection) -> Published:
            return await publish(
                connection,
                event,
                attributes,
                value=value,
                author=writer.key_id,
                gate=self.turns,
                quotas=self.quotas,
            )

        try:
            return await transact(self.engine, work)
        except DBAPIError as refused:
            state = code(refused) or ""
            if state == _TOO_LARGE:
                raise _too_large() from refused
            if state.startswith(_UNSTORABLE):
                detail = "data holds a value that cannot be stored (a number out of range)"
                raise Rejected("invalid_data", detail, status=422) from refused
            raise

    def _count(self, jobs: Sequence[EventJob]) -> None:
        for job in jobs:
            result = "duplicate" if job.duplicate else "accepted"
            self.metrics.jobs_submitted.labels(job.type, "event", result).inc()


def _trace(body: EventBody, request: Request) -> tuple[str | None, str | None]:
    """Give the traceparent of an event, and the tracestate that came with it."""
    if body.traceparent is not None:
        return body.traceparent, tracestate.read(body.tracestate)
    if (carried := tracing.carried()) is not None:
        return carried, tracing.carried_state()
    found = request.headers.get("traceparent")
    return found, tracestate.beside(found, tracestate.of(request.headers))


def _contract(body: EventBody, writer: Principal, registry: Registry) -> Registered:
    kind, version = body.contract
    if not writer.may_use(kind):
        raise Rejected("forbidden", f"the API key may not publish {kind}", status=403)
    if body.version is not None and body.version != version:
        flaw = Flaw("/version", f"found {body.version}, but the type names version {version}")
        raise Rejected("invalid_request", flaw.detail, status=422, flaws=[flaw])
    found = registry.find(kind, version)
    if found is not None and (found.queue is None or registry.handles(kind, found.version)):
        return found
    if found is not None:
        detail = f"{kind} v{found.version} is a job that nobody handles as an event"
    else:
        known = ", ".join(map(str, registry.versions(kind)))
        detail = f"there is no event {kind[:200]!r}" + (f" v{version}" if version else "")
        detail += f", there is version {known}" if known else ""
    flaw = Flaw("/type", detail)
    raise Rejected("unknown_contract", detail, status=422, flaws=[flaw])


def _check(
    envelope: Envelope, contract: Registered, body: EventBody, tenant: str, most: int
) -> None:
    if (size := len(envelope.data.encode())) > most:
        raise too_large(size, most)
    if len(replace(envelope, data="null").encode()) > _ATTRIBUTES:
        raise _too_large()
    if (body.model_extra or {}).get(events.TENANT, tenant) != tenant:
        raise Rejected("forbidden", "the API key belongs to another tenant", status=403)
    flaws = [Flaw(f"/data{flaw.pointer}", flaw.detail) for flaw in contract.validate(body.data)]
    if flaws:
        first = f"{flaws[0].pointer}: {flaws[0].detail}"
        detail = f"data does not fit {contract.type} v{contract.version}: {first}"
        raise Rejected("invalid_data", detail, status=422, flaws=flaws)


def _too_large() -> Rejected:
    detail = f"the attributes of an event have {_ATTRIBUTES} bytes at most"
    return Rejected("data_too_large", detail, status=413, flaws=[Flaw("", detail)])


def _written(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _accepted(
    identity: str, envelope: Envelope, published: Published, told: Mapping[str, str]
) -> ExactResponse:
    contract = envelope.contract
    body = {
        "eventId": identity,
        "source": envelope.source,
        "type": contract and contract[0],
        "version": contract and contract[1],
        "duplicate": published.duplicate,
        "jobs": [
            {
                "jobId": str(job.id),
                "type": job.type,
                "status": job.status,
                "statusUrl": f"/v1/jobs/{job.id}",
                "duplicate": job.duplicate,
            }
            for job in published.jobs
        ],
    }
    headers = {**told, **({"Idempotent-Replayed": "true"} if published.duplicate else {})}
    return ExactResponse(body, status_code=202, headers=headers)
