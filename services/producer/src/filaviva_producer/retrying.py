"""POST /v1/jobs/{id}/retry: repeat what failed, of a job or of a batch.

Before: a job, or items of a batch, are failed or canceled. After: they are queued afresh.
May happen twice: the second time nothing is failed any more, and it is refused (`conflict`); with
an Idempotency-Key it has the answer of the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.responses import Response

from filaviva.database.transaction import transact
from filaviva.http import ExactResponse, allowed, documented, optional_json_body
from filaviva.operations.batch_request import MOST_ITEMS
from filaviva.operations.corrections import validator
from filaviva.operations.jobs import Reach
from filaviva.operations.keys import Principal
from filaviva.operations.retry import Part, Wish
from filaviva.operations.retry_once import Key, Repeated, retry_once
from filaviva.outbox import OutboxRow
from filaviva.registry import Registry
from filaviva.turns import Turns
from filaviva_producer import documents
from filaviva_producer.idempotency import idempotency_key
from filaviva_producer.pressure import Pressure
from filaviva_producer.reading import identity

Submitter = Annotated[Principal, Depends(allowed("jobs:write"))]


class Item(BaseModel):
    """An item that is to be repeated, with corrected data or as it was."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int = Field(strict=True, ge=0, lt=MOST_ITEMS)
    data: Any = None

    @property
    def part(self) -> Part:
        return Part(self.index, self.data) if "data" in self.model_fields_set else Part(self.index)


class Repeat(BaseModel):
    """The body, which may be left out: then everything that failed or was canceled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    items: list[Item] | None = Field(default=None, min_length=1, max_length=MOST_ITEMS)
    data: Any = None
    reason: str = Field(default="retry", min_length=1, max_length=500, pattern=r"^[^\x00]*$")

    def wish(self, author: str) -> Wish:
        """Give what is wanted, and by whom."""
        parts = None if self.items is None else [item.part for item in self.items]
        known = {"data": self.data} if "data" in self.model_fields_set else {}
        return Wish(author=author, reason=self.reason, parts=parts, **known)


_ITEMS: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "maxItems": MOST_ITEMS,
    "description": "of a batch; left out: every item that failed or was canceled",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["index"],
        "properties": {
            "index": {"type": "integer", "minimum": 0, "maximum": MOST_ITEMS - 1},
            "data": {"description": "instead of what it was, as the contract says"},
        },
    },
}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "items": _ITEMS,
        "data": {"description": "of a job that is no batch, instead of what it was"},
        "reason": {"type": "string", "minLength": 1, "maxLength": 500, "default": "retry"},
    },
}
_BODY: dict[str, Any] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "the same key and body have the same answer, and repeat nothing again",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
    ],
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": _SCHEMA,
                "example": {
                    "items": [{"index": 3, "data": {"documentUrl": "https://example.com/3.xml"}}],
                    "reason": "the document was replaced",
                },
            }
        },
    },
}


@dataclass(frozen=True, slots=True)
class Retrying:
    """The route's means."""

    engine: AsyncEngine
    registry: Registry
    pressure: Pressure
    hand_over: Callable[[Sequence[OutboxRow]], None]
    turns: Turns | None = None

    def router(self) -> APIRouter:
        """Give the route."""
        router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        router.add_api_route(
            "/{job_id}/retry",
            self.post,
            methods=["POST"],
            name="retryJob",
            operation_id="retryJob",
            status_code=202,
            response_model=documents.Retried,
            responses=documented(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 500, 503),
            openapi_extra=_BODY,
        )
        return router

    async def post(
        self,
        request: Request,
        caller: Submitter,
        job_id: str,
        repeat: Annotated[Repeat, Depends(optional_json_body(Repeat))],
    ) -> Response:
        """Repeat a failed or canceled job, or the failed and canceled items of a batch."""
        wanted, reach = identity(job_id), Reach(caller.tenant, caller.types)
        self.pressure.check()
        key = None
        if "idempotency-key" in request.headers:
            body = repeat.model_dump(exclude_unset=True)
            key = Key.of(idempotency_key(request), wanted, body)
        done = await self.again(wanted, reach, repeat.wish(caller.key_id), key)
        address = f"/v1/jobs/{wanted}"
        shown = {
            "jobId": str(wanted),
            "status": done.status,
            "statusUrl": address,
            "retried": done.retried,
            "refused": done.refused,
            "duplicate": done.duplicate,
        }
        replayed = {"Idempotent-Replayed": "true"} if done.duplicate else {}
        return ExactResponse(shown, status_code=202, headers={"Location": address, **replayed})

    async def again(
        self, job_id: UUID, reach: Reach, wish: Wish, key: Key | None = None
    ) -> Repeated:
        """Repeat what is within reach, once for each key; Rejected if nothing of it failed."""

        async def work(connection: AsyncConnection) -> Repeated:
            return await retry_once(
                connection,
                job_id,
                reach,
                wish,
                key,
                validate=validator(self.registry),
                gate=self.turns,
            )

        done = await transact(self.engine, work)
        self.hand_over(done.messages)
        return done
