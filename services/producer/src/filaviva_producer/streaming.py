"""GET /v1/jobs/{id}/events: a job's timeline as it grows.

Before: a request, perhaps with the last id that its client has seen. After: the client was sent
what came after that id, in order, once, up to the final state. May happen twice: each connection
reads on from the id it names, on whichever replica.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any
from uuid import UUID

import simplejson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import format_sse_event
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response

from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.errors import Rejected
from filaviva.http import allowed, documented, languages
from filaviva.http.auth import authenticated
from filaviva.operations import shapes, timelines
from filaviva.operations.figures import moment
from filaviva.operations.jobs import Event, Reach
from filaviva.operations.keys import Principal
from filaviva.operations.links import Links
from filaviva.operations.timelines import FINAL, Standing
from filaviva_producer import documents
from filaviva_producer.event_stream import EventStream, Stream
from filaviva_producer.linking import linked
from filaviva_producer.reading import identity
from filaviva_producer.seats import Seats
from filaviva_producer.streams import Streams

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)

Reader = Annotated[Principal, Depends(allowed("jobs:read"))]
After = Annotated[
    int | None,
    Query(ge=0, lt=10**18, description="as Last-Event-ID, for clients that cannot send it"),
]


@dataclass(frozen=True, slots=True)
class Follow:
    """Who follows what: the job, the last id seen, and whose seat it takes."""

    job_id: UUID
    seen: int | None
    tenant: str
    holder: str
    each: int


@dataclass(frozen=True, slots=True)
class Streaming:
    """The route's means: the database, those who follow, and seats for them."""

    engine: AsyncEngine
    streams: Streams
    seats: Seats
    links: Links | None = None
    each: int = 2000
    beat: float = 15.0

    def router(self) -> APIRouter:
        """Give the route."""
        router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        router.add_api_route(
            "/{job_id}/events",
            self.get,
            methods=["GET"],
            name="streamJob",
            operation_id="streamJob",
            response_class=Response,
            response_model=None,
            responses={**documents.EVENTS, **documented(401, 403, 404, 410, 422, 429, 500, 503)},
        )
        return router

    async def get(
        self, request: Request, reader: Reader, job_id: str, after: After = None
    ) -> Response:
        """Stream a job: a snapshot, then what happens to it, up to its final state.

        `id:` is the sequence of the timeline: a client that names it in `Last-Event-ID` reads on
        there, without a snapshot. After the end of a finished job the answer is `204`, so that an
        EventSource stops.
        """
        last = request.headers.get("last-event-id", "")
        seen = int(last) if _NUMBER.fullmatch(last) else after
        follow = Follow(identity(job_id), seen, reader.tenant, reader.key_id, self.each)
        reach = Reach(reader.tenant, reader.types)
        language = languages.preferred(request)
        opening = partial(_snapshot, language, reader, self.links)
        telling = partial(tell, language=language)
        return await self.answer(follow, reach, opening, telling, _still_allowed(request))

    async def answer(
        self,
        follow: Follow,
        reach: Reach,
        opening: Callable[[Standing], bytes],
        tell: Callable[[Event], bytes],
        still: Callable[[], Awaitable[bool]],
    ) -> Response:
        """Answer who may follow: with a stream, or 204 when there is nothing left to come."""
        async with self.engine.connect() as connection:
            found = await timelines.standing(connection, follow.job_id, reach)
        final = found.job.state in FINAL
        if final and follow.seen == found.last:
            return Response(status_code=204)
        # An id after the last is of a timeline that was (restored, or removed by age): begin anew.
        known = follow.seen is not None and follow.seen <= found.last
        position = follow.seen if known and follow.seen is not None else found.last
        stream = Stream(b"" if known else opening(found), tell, still, self.beat)
        ended = final and not known
        following = None if ended else self.streams.following(follow.job_id, position)
        taken = self.seats.taken(follow.tenant, follow.holder, each=follow.each)
        return EventStream(stream, taken, following)


@lru_cache(maxsize=512)  # many may follow the same job
def tell(entry: Event, language: str = "en") -> bytes:
    """Write an entry of the timeline as an event."""
    found: dict[str, Any] = simplejson.loads(entry.data, use_decimal=True)
    content = shapes.progress(found, language) if entry.kind == "progress" else found
    content = {**content, "at": moment(entry.at)}
    return format_sse_event(event=entry.kind, data_str=shapes.dumps(content), id=str(entry.id))


def _snapshot(language: str, reader: Principal, links: Links | None, found: Standing) -> bytes:
    content = shapes.dumps(linked(found.job, reader, links, language))
    return format_sse_event(event="snapshot", data_str=content, id=str(found.last))


def _still_allowed(request: Request) -> Callable[[], Awaitable[bool]]:
    async def still() -> bool:
        try:
            await authenticated(request, "jobs:read")
        except Rejected:
            return False  # revoked or expired since
        except DATABASE_ERRORS:
            return True  # nobody can say; the next beat asks again
        return True

    return still
