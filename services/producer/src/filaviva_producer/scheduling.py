"""/v1/schedules: jobs that are submitted by the calendar.

Before: a request. After: the row is committed and says when it fires next, or a problem and nothing
changed. May happen twice: creating again with the same body is the same schedule; pausing, resuming
and removing end the same.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.responses import Response

from filaviva.callbacks.urls import Rules
from filaviva.database.transaction import transact
from filaviva.errors import Flaw, NotFound, Rejected
from filaviva.http import ExactResponse, allowed, pages
from filaviva.http.bodies import read_json
from filaviva.operations import schedule_shapes, schedules
from filaviva.operations.batch_request import POLICY
from filaviva.operations.jobs import Reach
from filaviva.operations.keys import Principal
from filaviva.operations.schedules import Schedule
from filaviva.operations.scheduling import Definition, define
from filaviva.operations.submission import Origin, admit
from filaviva.operations.submit import Submitter
from filaviva.registry import Registry
from filaviva_producer import schedule_documents as documents
from filaviva_producer.idempotency import idempotency_key

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_FIXED = ("name", "type")

Reader = Annotated[Principal, Depends(allowed("jobs:read"))]
Writer = Annotated[Principal, Depends(allowed("jobs:write"))]
Limit = Annotated[int, Query(ge=1, le=200, description="how many at most")]
After = Annotated[str | None, Query(max_length=500, description="`next` of the page before")]


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The routes' means: the database, the contracts, and what submits a job out of turn."""

    engine: AsyncEngine
    registry: Registry
    submitter: Submitter
    max_data_bytes: int = 256 * 1024
    callbacks: Rules | None = None

    def router(self) -> APIRouter:
        """Give the routes."""
        router = APIRouter(prefix="/v1/schedules", tags=["schedules"])
        one = "/{schedule_id}"
        for method, path, route, name, status, more in (
            ("POST", "", self.create, "createSchedule", 201, documents.CREATE),
            ("GET", "", self.newest, "listSchedules", 200, documents.LIST),
            ("GET", one, self.get, "getSchedule", 200, documents.ONE),
            ("PATCH", one, self.change, "changeSchedule", 200, documents.CHANGE),
            ("DELETE", one, self.remove, "removeSchedule", 204, documents.GONE),
            ("POST", f"{one}/pause", self.pause, "pauseSchedule", 200, documents.ONE),
            ("POST", f"{one}/resume", self.resume, "resumeSchedule", 200, documents.ONE),
            ("POST", f"{one}/fire", self.fire, "fireSchedule", 202, documents.FIRED),
        ):
            named = {"name": name, "operation_id": name, "status_code": status}
            router.add_api_route(path, route, methods=[method], **named, **more)  # type: ignore[arg-type]
        return router

    async def create(self, request: Request, writer: Writer) -> Response:
        """Keep a new schedule; the same body again gives the same schedule (200)."""
        value = await read_json(request)
        wanted = self._define(value, writer)
        made, new = await transact(
            self.engine, lambda on: schedules.create(on, wanted, author=author(writer))
        )
        address = f"/v1/schedules/{made.id}"
        return ExactResponse(
            schedule_shapes.schedule(made), 201 if new else 200, {"Location": address}
        )

    def _define(self, value: Any, writer: Principal) -> Definition:
        return define(
            value,
            writer,
            self.registry,
            max_data_bytes=self.max_data_bytes,
            callbacks=self.callbacks,
        )

    async def newest(
        self, request: Request, reader: Reader, cursor: After = None, limit: Limit = 50
    ) -> Response:
        """List schedules, newest first, without their data."""
        seal = {"list": "schedules", "tenant": reader.tenant}
        last = pages.after(cursor, seal, form=_UUID)
        before = None if last is None else UUID(last)
        async with self.engine.connect() as connection:
            found = await schedules.newest(
                connection, reach(reader), before=before, limit=limit + 1
            )
        following = pages.cursor(str(found[limit - 1].id), seal) if len(found) > limit else None
        items = [schedule_shapes.summary(one) for one in found[:limit]]
        answer = ExactResponse({"items": items, "next": following})
        if following:
            address = request.url.include_query_params(cursor=following)
            answer.headers["Link"] = f'<{address.path}?{address.query}>; rel="next"'
        return answer

    async def get(self, reader: Reader, schedule_id: str) -> Response:
        """Show a schedule and its next five times."""
        identity = _identity(schedule_id)
        async with self.engine.connect() as connection:
            found = await schedules.get(connection, identity, reach(reader))
        return ExactResponse(schedule_shapes.schedule(found))

    async def change(self, request: Request, writer: Writer, schedule_id: str) -> Response:
        """Change what is named in the body; null makes it what it is without saying."""
        identity, value = _identity(schedule_id), await read_json(request)
        _check_change(value)

        async def work(connection: AsyncConnection) -> Schedule:
            found = await schedules.get(connection, identity, reach(writer), lock=True)
            body = {**_kept(found.request(), value), **value}
            alone = "items" not in body
            given = {
                name: one
                for name, one in body.items()
                if one is not None or (name == "data" and alone)
            }
            wanted = self._define(given, writer)
            return await schedules.change(connection, found, wanted, author=author(writer))

        return ExactResponse(schedule_shapes.schedule(await transact(self.engine, work)))

    async def remove(self, writer: Writer, schedule_id: str) -> Response:
        """Remove a schedule; the jobs that it submitted stay."""
        identity = _identity(schedule_id)

        async def work(connection: AsyncConnection) -> None:
            found = await schedules.get(connection, identity, reach(writer), lock=True)
            await schedules.remove(connection, found, author=author(writer))

        await transact(self.engine, work)
        return Response(status_code=204)

    async def pause(self, writer: Writer, schedule_id: str) -> Response:
        """Submit nothing until it is resumed."""
        return await self._enable(writer, schedule_id, enabled=False)

    async def resume(self, writer: Writer, schedule_id: str) -> Response:
        """Go on from now: what came while it was paused is not made up for."""
        return await self._enable(writer, schedule_id, enabled=True)

    async def _enable(self, writer: Principal, schedule_id: str, *, enabled: bool) -> Response:
        identity = _identity(schedule_id)

        async def work(connection: AsyncConnection) -> Schedule:
            found = await schedules.get(connection, identity, reach(writer), lock=True)
            return await schedules.enable(connection, found, enabled=enabled, author=author(writer))

        return ExactResponse(schedule_shapes.schedule(await transact(self.engine, work)))

    async def fire(self, request: Request, writer: Writer, schedule_id: str) -> Response:
        """Submit its job now, out of turn; with an Idempotency-Key once."""
        identity = _identity(schedule_id)
        given = "idempotency-key" in request.headers
        key = idempotency_key(request) if given else str(uuid4())
        async with self.engine.connect() as connection:
            found = await schedules.get(connection, identity, reach(writer))
        # Not what a firing by the calendar is named by, whatever the key says.
        origin = Origin(writer, f"schedule:{identity}:out of turn:{key}", request.state.request_id)
        wanted = admit(
            found.job(),
            origin,
            self.registry,
            max_data_bytes=self.max_data_bytes,
            callbacks=self.callbacks,
        )
        kept = await self.submitter.submit(wanted)
        if not kept.duplicate:
            await transact(
                self.engine,
                lambda on: schedules.fired(on, found, kept.job_id, author=author(writer)),
            )
        address = f"/v1/jobs/{kept.job_id}"
        body = {
            "jobId": str(kept.job_id),
            "status": kept.status,
            "statusUrl": address,
            "duplicate": kept.duplicate,
        }
        return ExactResponse(body, 202, {"Location": address})


def reach(principal: Principal) -> Reach:
    """Give what a key may see."""
    return Reach(principal.tenant, principal.types)


def author(principal: Principal) -> str:
    """Name a key in the audit log."""
    return f"key:{principal.key_id}"


def _identity(text: str) -> UUID:
    if not _UUID.fullmatch(text):
        raise NotFound(f"there is no schedule {text[:50]!r}: a schedule's id is a UUID")
    return UUID(text)


def _kept(before: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what the change takes the place of: data for items, items for data."""
    replaced: tuple[str, ...] = ()
    if change.get("items") is not None:
        replaced = ("data",)
    elif "data" in change:
        replaced = ("items", *POLICY)
    return {name: one for name, one in before.items() if name not in replaced}


def _check_change(value: Any) -> None:
    if not isinstance(value, Mapping) or not value:
        detail = "expected an object with what is to change"
        raise Rejected("invalid_request", detail, status=422, flaws=[Flaw("", detail)])
    fixed = [name for name in _FIXED if name in value]
    if fixed:
        detail = f"a schedule's {fixed[0]} does not change: make a new one"
        flaws = [Flaw(f"/{name}", detail) for name in fixed]
        raise Rejected("invalid_request", detail, status=422, flaws=flaws)
