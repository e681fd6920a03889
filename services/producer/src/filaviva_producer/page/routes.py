"""GET /jobs/{id}: the status page. Whoever has the signed link sees this job, and no other.

Before: a link. After: the job in words; a form of the page does what the API would do.
May happen twice: looking changes nothing; a repeated form finds nothing left to change.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter
from fastapi.sse import format_sse_event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from filaviva.database.transaction import DATABASE_ERRORS, transient
from filaviva.errors import NotFound, Rejected
from filaviva.operations import jobs, timelines
from filaviva.operations.jobs import Event, Item, Reach
from filaviva.operations.links import Link, Links, Right
from filaviva.operations.timelines import Standing
from filaviva_producer.page.acting import Action
from filaviva_producer.page.rendering import HEADERS, Rendering
from filaviva_producer.page.results import READ
from filaviva_producer.page.view import parts, view
from filaviva_producer.page.visit import PAGE, Visit, Wanted, read_link, whole, words_for
from filaviva_producer.page.words import Words
from filaviva_producer.reading import identity
from filaviva_producer.streaming import Follow, Streaming

_BODY: Final = 4096
_EACH: Final = 25  # streams of one link
_BUSY: Final = (429, 503)
_FAILED: Final = ("failed", "canceled")


@dataclass(frozen=True, slots=True)
class Page:
    """The page's means; `actions` say what its forms do, and give the note to show then."""

    engine: AsyncEngine
    links: Links
    streaming: Streaming
    actions: Mapping[Right, Action]
    rendering: Rendering = field(default_factory=Rendering)

    def router(self) -> APIRouter:
        """Give the routes: plain ones, since mailers add parameters of theirs to links."""
        router = APIRouter()

        def add(path: str, route: Callable[[Request], Awaitable[Response]], method: str) -> None:
            router.add_route(path, route, methods=[method], include_in_schema=False)

        add("/jobs/assets/{name}", self.asset, "GET")
        add("/jobs/{job_id}", self.get, "GET")
        add("/jobs/{job_id}/events", self.events, "GET")
        add("/jobs/{job_id}/{action}", self.post, "POST")
        return router

    async def asset(self, request: Request) -> Response:
        """Give a file of the page."""
        found = self.rendering.asset(request.path_params["name"])
        if found is None:
            raise NotFound("there is nothing at this address")
        return found

    async def get(self, request: Request) -> Response:
        """Show the job."""
        wanted = Wanted.of(request.query_params)
        words = words_for(request, wanted)
        link = self._opened(request)
        if link is None:
            return self._refused(request, words)
        try:
            return await self._shown(link, wanted, words)
        except NotFound:
            return self._gone(words)
        except DATABASE_ERRORS as absent:
            if not transient(absent):
                raise
            return self._away(words)

    async def events(self, request: Request) -> Response:
        """Stream when the page changes, but not how: the page itself is rendered here alone."""
        link = self._opened(request)
        if link is None:
            raise Rejected("forbidden", "the link is not valid, or not any more", status=403)
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        seen = whole(last, None, digits=18)

        async def still() -> bool:
            return link.seconds_left > 0

        async with self.engine.connect() as connection:
            tenant = await jobs.tenant_of(connection, link.job_id)
        follow = Follow(link.job_id, seen, tenant, f"link {link.job_id}", _EACH)
        return await self.streaming.answer(follow, Reach(tenant), _begun, _changed, still)

    async def post(self, request: Request) -> Response:
        """Do what a form of the page asks for, and show the page again."""
        wanted = Wanted.of(request.query_params)
        words = words_for(request, wanted)
        link = self._opened(request)
        if link is None:
            return self._refused(request, words, depth=1)
        try:
            note = await self._act(request, link, request.path_params["action"])
        except NotFound:
            return self._gone(words, depth=1)
        except DATABASE_ERRORS as absent:
            if not transient(absent):
                raise
            return self._away(words, depth=1)
        query = replace(wanted, note=note).query
        address = f"../{link.job_id}?{self.links.query(link)}&{query}"
        return RedirectResponse(address, 303, HEADERS)

    async def _act(self, request: Request, link: Link, name: str) -> str:
        action = next((one for one in self.actions if one == name and link.may(one)), None)
        if action is None:
            raise NotFound("there is nothing at this address")
        form = await _form(request)
        if not self.links.posted(link, action, form.get("token", "")) or _foreign(request):
            return "form"
        index = whole(form.get("item", ""), None)
        async with self.engine.connect() as connection:
            reach = Reach(await jobs.tenant_of(connection, link.job_id))
        try:
            return await self.actions[action](link.job_id, reach, index)
        except Rejected as refused:
            return "busy" if refused.status in _BUSY else "too_late"

    def _opened(self, request: Request) -> Link | None:
        """Give what the address opens; None if its signature is not ours or it has expired."""
        try:
            job_id = identity(request.path_params["job_id"])
        except NotFound:
            return None
        link, signature = read_link(job_id, request.query_params)
        return link if self.links.signed(link, signature) and link.seconds_left > 0 else None

    async def _shown(self, link: Link, wanted: Wanted, words: Words) -> Response:
        async with self.engine.connect() as connection:
            reach = Reach(await jobs.tenant_of(connection, link.job_id))
            found = await timelines.standing(connection, link.job_id, reach)
            items = await _items(connection, found, wanted)
        shown = view(found.job, words)
        following = items[PAGE - 1].item_index if len(items) > PAGE else None
        able = frozenset(self.actions)
        visit = Visit(link, self.links, wanted, words, shown, able, found.last, following)
        some = parts(items[:PAGE], words)
        return self.rendering.page("status.html", words, view=shown, parts=some, page=visit)

    def _refused(self, request: Request, words: Words, *, depth: int = 0) -> Response:
        # Told even of a forged link: an expiry in the past explains it best.
        link, _ = read_link(None, request.query_params)
        why = words.expired if link.expires > 0 and link.seconds_left <= 0 else words.forged
        return self._notice(words, 403, words.refused_title, why, words.refused_helps, depth=depth)

    def _gone(self, words: Words, *, depth: int = 0) -> Response:
        return self._notice(words, 410, words.gone_title, words.gone, depth=depth)

    def _away(self, words: Words, *, depth: int = 0) -> Response:
        again = 5 if not depth else None
        answer = self._notice(words, 503, words.away_title, words.away, depth=depth, again=again)
        answer.headers["Retry-After"] = "5"
        return answer

    def _notice(
        self,
        words: Words,
        status: int,
        heading: str,
        *sentences: str,
        depth: int = 0,
        again: int | None = None,
    ) -> Response:
        return self.rendering.page(
            "notice.html",
            words,
            status=status,
            depth=depth,
            heading=heading,
            sentences=sentences,
            again=again,
        )


async def _items(connection: AsyncConnection, found: Standing, wanted: Wanted) -> list[Item]:
    if not found.job.is_batch:
        return []
    statuses = _FAILED if wanted.failed else ()
    return await jobs.items(
        connection,
        found.job.id,
        statuses=statuses,
        after=wanted.after,
        limit=PAGE + 1,
        longest=READ,
    )


async def _form(request: Request) -> Mapping[str, str]:
    """Read a form; one that is too large or no form is an empty one."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _BODY:
                return {}
        fields = parse_qs(body.decode("ascii"), max_num_fields=10)
    except (ClientDisconnect, ValueError):
        return {}
    return {name: values[-1] for name, values in fields.items()}


def _foreign(request: Request) -> bool:
    """Tell whether the browser says that another site sends this."""
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def _begun(found: Standing) -> bytes:
    return format_sse_event(event="changed", data_str="{}", id=str(found.last))


def _changed(entry: Event) -> bytes:
    return format_sse_event(event="changed", data_str="{}", id=str(entry.id))
