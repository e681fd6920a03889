"""GET /v1/jobs…: what became of jobs. Reading changes nothing and may happen at any time."""

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response

from filaviva.errors import Flaw, NotFound, Rejected
from filaviva.http import ExactResponse, allowed, documented, languages, pages
from filaviva.operations import jobs, shapes
from filaviva.operations.jobs import Filters, Job, Reach
from filaviva.operations.keys import Principal
from filaviva.operations.links import Links
from filaviva_producer import documents
from filaviva_producer.documents import Status
from filaviva_producer.linking import linked
from filaviva_producer.waiting import Watch

T = TypeVar("T")
_FINAL = frozenset(("succeeded", "failed", "canceled"))
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_FAMILY = "label."

Reader = Annotated[Principal, Depends(allowed("jobs:read"))]
Limit = Annotated[int, Query(ge=1, le=200, description="how many at most")]
Few = Annotated[int, Query(ge=1, le=100, description="how many at most; results may be large")]
After = Annotated[str | None, Query(max_length=500, description="`next` of the page before")]
_NUL_FREE = r"^[^\x00]+$"


@dataclass(frozen=True, slots=True)
class Reading:
    """The routes' means: the database, and the watch for those who wait."""

    engine: AsyncEngine
    watch: Watch
    links: Links | None = None

    def router(self) -> APIRouter:
        """Give the routes."""
        router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        refusals = documented(401, 403, 404, 410, 422, 500, 503)
        lists = {key: value for key, value in refusals.items() if key not in {404, 410}}

        def add(path: str, route: Any, name: str, model: Any, **more: Any) -> None:
            more.setdefault("responses", refusals)
            router.add_api_route(
                path,
                route,
                methods=["GET"],
                name=name,
                operation_id=name,
                response_model=model,
                **more,
            )

        add(
            "",
            self.newest,
            "listJobs",
            documents.JobList,
            responses=lists,
            openapi_extra=documents.LABELS,
        )
        add(
            "/{job_id}",
            self.get,
            "getJob",
            documents.Job,
            responses={**refusals, **documents.NOT_MODIFIED},
        )
        add("/{job_id}/items", self.items, "listItems", documents.ItemList)
        add("/{job_id}/attempts", self.attempts, "listAttempts", documents.AttemptList)
        add("/{job_id}/steps", self.steps, "listSteps", documents.StepList)
        add("/{job_id}/llm-calls", self.llm_calls, "listModelCalls", documents.LlmCallList)
        add("/{job_id}/timeline", self.timeline, "getTimeline", documents.Timeline)
        return router

    async def newest(  # noqa: PLR0913, PLR0917 - the filters
        self,
        request: Request,
        reader: Reader,
        status: Annotated[list[Status] | None, Query(description="may be repeated")] = None,
        type: Annotated[str | None, Query(max_length=200, pattern=_NUL_FREE)] = None,  # noqa: A002
        parent: UUID | None = None,
        cursor: After = None,
        limit: Limit = 50,
    ) -> Response:
        """List jobs, newest first, without their results."""
        statuses = tuple(sorted({one.value for one in status or ()}))
        filters = Filters(statuses, type, _labels(request), parent)
        seal = {"filters": repr(filters), "tenant": reader.tenant}
        last = pages.after(cursor, seal, form=_UUID)
        before = None if last is None else UUID(last)
        async with self.engine.connect() as connection:
            found = await jobs.newest(
                connection, _reach(reader), filters, before=before, limit=limit + 1
            )
        language = languages.preferred(request)

        def shape(job: Job) -> dict[str, Any]:
            return shapes.job_summary(job, language)

        page = _page(request, found, limit, seal, shape, lambda job: str(job.id))
        page.headers["Vary"] = "Accept-Language"
        return page

    async def get(
        self,
        request: Request,
        reader: Reader,
        job_id: str,
        wait: Annotated[float, Query(ge=0, le=60, description="seconds to wait for a change")] = 0,
    ) -> Response:
        """Give a job as it is now; with `wait`, once it has changed or is final."""
        until = time.monotonic() + wait
        known = request.headers.get("if-none-match")
        wanted, reach = identity(job_id), _reach(reader)
        language = languages.preferred(request)
        while True:
            version, found = await self._read(wanted, reach)
            answer = ExactResponse(linked(found, reader, self.links, language))
            tag = f'"{hashlib.sha256(answer.body).hexdigest()[:32]}"'
            left = until - time.monotonic()
            if _worth_telling(found, tag, known) or left <= 0:
                break
            if not await self.watch.changed(wanted, version, left):
                until = 0  # once more, with what is there now
        return _tagged(answer, tag, known, found)

    async def _read(self, job_id: UUID, reach: Reach) -> tuple[str, Job]:
        async with self.engine.connect() as connection:
            # The version first: a change in between wakes us once too often, never too seldom.
            versions = await jobs.row_versions(connection, [job_id])
            return versions.get(job_id, ""), await jobs.get(connection, job_id, reach)

    async def items(  # noqa: PLR0913, PLR0917 - the filters
        self,
        request: Request,
        reader: Reader,
        job_id: str,
        status: Annotated[list[Status] | None, Query(description="may be repeated")] = None,
        cursor: After = None,
        limit: Few = 50,
    ) -> Response:
        """List the items of a batch, in order, with their results."""
        statuses = tuple(sorted({one.value for one in status or ()}))
        seal = {"list": request.url.path, "statuses": statuses}
        last = pages.after(cursor, seal, form=_NUMBER)
        wanted = identity(job_id)
        async with self.engine.connect() as connection:
            await jobs.get(connection, wanted, _reach(reader))
            found = await jobs.items(
                connection,
                wanted,
                statuses=statuses,
                after=-1 if last is None else int(last),
                limit=limit + 1,
            )
        return _page(request, found, limit, seal, shapes.item, lambda one: str(one.item_index))

    async def attempts(
        self,
        request: Request,
        reader: Reader,
        job_id: str,
        cursor: After = None,
        limit: Limit = 100,
    ) -> Response:
        """List the executions of a job, in order."""
        return await self._parts(
            request,
            reader,
            job_id,
            cursor,
            limit,
            jobs.attempts,
            shapes.attempt,
            lambda one: one.number,
        )

    async def llm_calls(
        self,
        request: Request,
        reader: Reader,
        job_id: str,
        cursor: After = None,
        limit: Limit = 100,
    ) -> Response:
        """List the recorded model calls of a job, in order."""
        return await self._parts(
            request,
            reader,
            job_id,
            cursor,
            limit,
            jobs.llm_calls,
            shapes.llm_call,
            lambda one: one.id,
        )

    async def timeline(
        self,
        request: Request,
        reader: Reader,
        job_id: str,
        cursor: After = None,
        limit: Limit = 100,
    ) -> Response:
        """List what happened to a job, in order."""
        return await self._parts(
            request,
            reader,
            job_id,
            cursor,
            limit,
            jobs.timeline,
            shapes.event,
            lambda one: one.id,
        )

    async def steps(self, request: Request, reader: Reader, job_id: str) -> Response:
        """List the steps of a job in the order in which they began."""
        wanted = identity(job_id)
        async with self.engine.connect() as connection:
            await jobs.get(connection, wanted, _reach(reader))
            found = await jobs.steps(connection, wanted)
        return _page(request, found, len(found), {}, shapes.step, str)

    async def _parts(  # noqa: PLR0913, PLR0917 - what the three lists differ in
        self,
        request: Request,
        reader: Principal,
        job_id: str,
        cursor: str | None,
        limit: int,
        read: Callable[..., Any],
        shape: Callable[[Any], dict[str, Any]],
        place: Callable[[Any], int],
    ) -> Response:
        wanted = identity(job_id)
        seal = {"list": request.url.path}
        last = pages.after(cursor, seal, form=_NUMBER)
        async with self.engine.connect() as connection:
            await jobs.get(connection, wanted, _reach(reader))
            found = await read(connection, wanted, after=int(last or 0), limit=limit + 1)
        return _page(request, found, limit, seal, shape, lambda one: str(place(one)))


def _reach(reader: Principal) -> Reach:
    return Reach(reader.tenant, reader.types)


def identity(text: str) -> UUID:
    """Read a job's id from an address; NotFound if it cannot be one."""
    if not _UUID.fullmatch(text):
        raise NotFound(f"there is no job {text[:50]!r}: a job's id is a UUID")
    return UUID(text)


def _labels(request: Request) -> dict[str, str]:
    labels = {}
    for name, value in request.query_params.multi_items():
        if name.startswith(_FAMILY):
            if "\x00" in name + value or name in labels:
                detail = "expected one value, without NUL"
                flaws = [Flaw(f"/query/{name}", detail)]
                raise Rejected("invalid_request", detail, status=422, flaws=flaws)
            labels[name.removeprefix(_FAMILY)] = value
    return labels


def _worth_telling(found: Job, tag: str, known: str | None) -> bool:
    if known is None:
        return found.state in _FINAL
    return not _matches(known, tag)


def _matches(known: str, tag: str) -> bool:
    tags = (one.strip().removeprefix("W/") for one in known.split(","))
    return any(one in ("*", tag) for one in tags)


def _tagged(answer: Response, tag: str, known: str | None, found: Job) -> Response:
    if known is not None and _matches(known, tag):
        answer = Response(status_code=304)
    answer.headers["ETag"] = tag
    answer.headers["Cache-Control"] = "private, no-cache"
    answer.headers["Vary"] = "Accept-Language"
    if found.state not in _FINAL:
        answer.headers["Retry-After"] = "1"
    return answer


def _page(  # noqa: PLR0913, PLR0917 - the parts of a page
    request: Request,
    found: Sequence[T],
    limit: int,
    seal: Mapping[str, object],
    shape: Callable[[T], dict[str, Any]],
    place: Callable[[T], str],
) -> Response:
    """Answer with one page; a row more than the limit was asked for, to know if there is more."""
    more = len(found) > limit
    following = pages.cursor(place(found[limit - 1]), seal) if more else None
    answer = ExactResponse({"items": [shape(one) for one in found[:limit]], "next": following})
    if following:
        address = request.url.include_query_params(cursor=following)
        answer.headers["Link"] = f'<{address.path}?{address.query}>; rel="next"'
    return answer
