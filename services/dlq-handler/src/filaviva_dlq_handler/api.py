"""The dlq-handler's HTTP side: look at dead letters, send them back, close them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response

from filaviva.database.transaction import transact
from filaviva.errors import NotFound
from filaviva.http import Application, ExactResponse, allowed, documented, json_body, pages
from filaviva.http.auth import authenticated
from filaviva.operations import dead_letters, failure_groups, replay, replay_report
from filaviva.operations.dead_letters import Filter
from filaviva.operations.discard import discard
from filaviva.operations.keys import Principal
from filaviva.operations.reach import Reach, identifier
from filaviva.operations.replay import ReplayRequest
from filaviva.outcome import ErrorClass
from filaviva.registry import Registry
from filaviva.words import DeadReason, GroupState, LetterState
from filaviva_dlq_handler.bodies import DiscardBody, ReplayBody, ResolveBody, SnoozeBody

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_SEEN = re.compile(r"[0-9T:.+-]{20,40}\|[0-9a-f-]{36}", re.ASCII)
_PLAIN = r"^[^\x00]+$"

Reader = Annotated[Principal, Depends(allowed("dlq:read"))]
Replayer = Annotated[Principal, Depends(allowed("dlq:replay"))]
Limit = Annotated[int, Query(ge=1, le=200, description="how many at most")]
After = Annotated[str | None, Query(max_length=500, description="`next` of the page before")]
Words = Annotated[str | None, Query(max_length=300, pattern=_PLAIN)]


class Api(Application):
    """Failure groups, dead letters and replays, with health and OpenAPI."""

    def __init__(self, routes: "Routes", **rest: Any) -> None:
        super().__init__(title="Filaviva dlq-handler", **rest)
        self.include_router(routes.router())


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes' means; `started` is called after a replay has begun."""

    engine: AsyncEngine
    registry: Registry
    started: Callable[[], None] = lambda: None

    def router(self) -> APIRouter:
        """Give the routes."""
        router = APIRouter(prefix="/v1", responses=documented(401, 403, 404, 422, 500, 503))
        reading: Sequence[tuple[str, Any, str]] = (
            ("/failure-groups", self.groups, "listFailureGroups"),
            ("/failure-groups/{group_id}", self.group, "getFailureGroup"),
            ("/dead-letters", self.letters, "listDeadLetters"),
            ("/dead-letters/{letter_id}", self.letter, "getDeadLetter"),
            ("/replays", self.replays, "listReplays"),
            ("/replays/{replay_id}", self.replay, "getReplay"),
        )
        acting: Sequence[tuple[str, Any, str, int]] = (
            ("/failure-groups/{group_id}/snooze", self.snooze, "snoozeFailureGroup", 200),
            ("/failure-groups/{group_id}/resolve", self.resolve, "resolveFailureGroup", 200),
            ("/dead-letters/{letter_id}/discard", self.discard, "discardDeadLetter", 200),
            ("/replays", self.start, "startReplay", 202),
            ("/replays/{replay_id}/stop", self.stop, "stopReplay", 200),
        )
        for path, route, name in reading:
            _add(router, "GET", path, route, name, 200)
        for path, route, name, status in acting:
            _add(router, "POST", path, route, name, status)
        return router

    async def groups(
        self,
        request: Request,
        reader: Reader,
        state: GroupState | None = None,
        cursor: After = None,
        limit: Limit = 50,
    ) -> Response:
        """List failure groups, the ones seen last first."""
        seal = {"list": "groups", "state": state, "tenant": reader.tenant}
        after = _seen(pages.after(cursor, seal, form=_SEEN))
        async with self.engine.connect() as connection:
            found = await failure_groups.page(
                connection, reach=reach(reader), state=state, after=after, limit=limit + 1
            )
        return _page(request, found, limit, seal, _place_of_group)

    async def group(self, reader: Reader, group_id: str) -> Response:
        """Show one failure group."""
        async with self.engine.connect() as connection:
            found = await failure_groups.get(connection, _id(group_id), reach=reach(reader))
        return ExactResponse(found)

    async def letters(  # noqa: PLR0913, PLR0917 - the filters
        self,
        request: Request,
        reader: Reader,
        group: UUID | None = None,
        job: UUID | None = None,
        type: Words = None,  # noqa: A002 - the word of the contract
        error_class: Annotated[ErrorClass | None, Query(alias="errorClass")] = None,
        reason: DeadReason | None = None,
        status: LetterState | None = None,
        cursor: After = None,
        limit: Limit = 50,
    ) -> Response:
        """List dead letters, newest first."""
        wanted = Filter(
            group=group, job=job, type=type, error_class=error_class, reason=reason, status=status
        )
        seal = {"list": "letters", "filter": repr(wanted), "tenant": reader.tenant}
        last = identifier(pages.after(cursor, seal, form=_UUID))
        async with self.engine.connect() as connection:
            found = await dead_letters.page(
                connection, wanted, reach=reach(reader), after=last, limit=limit + 1
            )
        return _page(request, found, limit, seal, _place_of_letter)

    async def letter(
        self,
        request: Request,
        reader: Reader,
        letter_id: str,
        reveal: Annotated[bool, Query(description="with its content; it is audited")] = False,  # noqa: FBT002 - a query parameter
    ) -> Response:
        """Show one dead letter; its content is redacted unless revealed."""
        id_, whose = _id(letter_id), reach(reader)
        if not reveal:
            async with self.engine.connect() as connection:
                return ExactResponse(await dead_letters.get(connection, id_, reach=whose))
        await authenticated(request, "dlq:replay")
        shown = await transact(
            self.engine,
            lambda on: dead_letters.reveal(on, id_, author=author(reader), reach=whose),
        )
        return ExactResponse(shown, headers={"Cache-Control": "no-store"})

    async def replays(
        self, request: Request, reader: Reader, cursor: After = None, limit: Limit = 50
    ) -> Response:
        """List replays, newest first."""
        seal = {"list": "replays", "tenant": reader.tenant}
        last = identifier(pages.after(cursor, seal, form=_UUID))
        async with self.engine.connect() as connection:
            found = await replay_report.page(
                connection, reach=reach(reader), after=last, limit=limit + 1
            )
        return _page(request, found, limit, seal, _place_of_letter)

    async def replay(
        self, reader: Reader, replay_id: str, cursor: After = None, limit: Limit = 100
    ) -> Response:
        """Show a replay: progress, each letter's result, estimated and real cost."""
        id_ = _id(replay_id)
        seal = {"list": str(id_)}
        last = identifier(pages.after(cursor, seal, form=_UUID))
        async with self.engine.connect() as connection:
            found = await replay_report.report(
                connection, id_, reach=reach(reader), after=last, limit=limit + 1
            )
        letters = found["letters"]
        more = len(letters) > limit
        following = pages.cursor(letters[limit - 1]["deadLetterId"], seal) if more else None
        return ExactResponse({**found, "letters": letters[:limit], "next": following})

    async def start(
        self, replayer: Replayer, wanted: Annotated[ReplayBody, Depends(json_body(ReplayBody))]
    ) -> Response:
        """Begin a replay; the letters go at the wanted pace."""
        request = ReplayRequest(
            letters=wanted.scope.letters(),
            author=author(replayer),
            reason=wanted.reason,
            patch=wanted.patch,
            rate_per_second=wanted.rate_per_second,
            canary=wanted.canary,
            scope=wanted.scope.model_dump(mode="json", exclude_none=True, by_alias=True),
        )
        begun = await transact(
            self.engine,
            lambda on: replay.start(on, request, registry=self.registry, reach=reach(replayer)),
        )
        self.started()
        address = f"/v1/replays/{begun['id']}"
        answer = {"replayId": begun["id"], **begun, "statusUrl": address}
        return ExactResponse(answer, 202, {"Location": address, "Retry-After": "1"})

    async def stop(self, replayer: Replayer, replay_id: str) -> Response:
        """Send nothing more of a replay."""
        id_, who = _id(replay_id), author(replayer)
        stopped = await transact(
            self.engine, lambda on: replay.stop(on, id_, author=who, reach=reach(replayer))
        )
        return ExactResponse(stopped)

    async def discard(
        self,
        replayer: Replayer,
        letter_id: str,
        wanted: Annotated[DiscardBody, Depends(json_body(DiscardBody))],
    ) -> Response:
        """Close a letter for good."""
        id_, who = _id(letter_id), author(replayer)
        closed = await transact(
            self.engine,
            lambda on: discard(on, id_, author=who, reason=wanted.reason, reach=reach(replayer)),
        )
        return ExactResponse(closed)

    async def snooze(
        self,
        replayer: Replayer,
        group_id: str,
        wanted: Annotated[SnoozeBody, Depends(json_body(SnoozeBody))],
    ) -> Response:
        """Send no alert about a group for some time."""
        id_, who = _id(group_id), author(replayer)
        silent = await transact(
            self.engine,
            lambda on: failure_groups.snooze(
                on,
                id_,
                author=who,
                seconds=wanted.seconds,
                reason=wanted.reason,
                reach=reach(replayer),
            ),
        )
        return ExactResponse(silent)

    async def resolve(
        self,
        replayer: Replayer,
        group_id: str,
        wanted: Annotated[ResolveBody, Depends(json_body(ResolveBody))],
    ) -> Response:
        """End a group's episode."""
        id_, who = _id(group_id), author(replayer)
        resolved = await transact(
            self.engine,
            lambda on: failure_groups.resolve(
                on, id_, author=who, reason=wanted.reason, reach=reach(replayer)
            ),
        )
        return ExactResponse(resolved)


def reach(principal: Principal) -> Reach:
    """Give what a key may see: its tenant's letters; with `admin` also those of nobody."""
    return Reach(principal.tenant, principal.types, foreign="admin" in principal.scopes)


def author(principal: Principal) -> str:
    """Name a key in the audit log."""
    return f"key:{principal.key_id}"


def _add(  # noqa: PLR0913, PLR0917 - one line of a table of routes
    router: APIRouter, method: str, path: str, route: Any, name: str, status: int
) -> None:
    conflicts = documented(400, 409, 413, 415) if method == "POST" else {}
    router.add_api_route(
        path,
        route,
        methods=[method],
        name=name,
        operation_id=name,
        status_code=status,
        response_model=dict[str, Any],
        responses=conflicts,
    )


def _id(text: str) -> UUID:
    if not _UUID.fullmatch(text):
        raise NotFound(f"found nothing called {text[:50]!r}: expected a UUID")
    return UUID(text)


def _seen(place: str | None) -> tuple[datetime, UUID] | None:
    if place is None:
        return None
    at, _, id_ = place.partition("|")
    return datetime.fromisoformat(at), UUID(id_)


def _place_of_group(row: Mapping[str, Any]) -> str:
    return f"{row['lastSeenAt'].removesuffix('Z')}+00:00|{row['id']}"


def _place_of_letter(row: Mapping[str, Any]) -> str:
    return str(row["id"])


def _page(
    request: Request,
    found: Sequence[Mapping[str, Any]],
    limit: int,
    seal: Mapping[str, object],
    place: Callable[[Mapping[str, Any]], str],
) -> Response:
    """Answer with one page; a row more than the limit was asked for, to know if there is more."""
    following = pages.cursor(place(found[limit - 1]), seal) if len(found) > limit else None
    answer = ExactResponse({"items": found[:limit], "next": following})
    if following:
        address = request.url.include_query_params(cursor=following)
        answer.headers["Link"] = f'<{address.path}?{address.query}>; rel="next"'
    return answer
