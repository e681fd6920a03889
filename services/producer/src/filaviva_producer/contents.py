"""/v1/contents: data that is too large for a message, put here and sent by reference.

Before: a request. After: the text is kept under its hash for some time, or a problem and nothing.
May happen twice: the same text is the same reference.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.responses import Response

from filaviva import contents
from filaviva.contents import Content
from filaviva.database.transaction import transact
from filaviva.errors import Flaw, NotFound, Rejected
from filaviva.http import ExactResponse, allowed
from filaviva.http.bodies import parsed, read_body
from filaviva.operations.keys import Principal
from filaviva_producer import content_documents as documents
from filaviva_producer.pressure import Pressure

Reader = Annotated[Principal, Depends(allowed("jobs:read"))]
Writer = Annotated[Principal, Depends(allowed("jobs:write"))]


@dataclass(frozen=True, slots=True)
class Contents:
    """The routes' means."""

    engine: AsyncEngine
    pressure: Pressure
    max_data_bytes: int = 256 * 1024

    def router(self) -> APIRouter:
        """Give the routes."""
        router = APIRouter(prefix="/v1/contents", tags=["events"])
        router.add_api_route(
            "",
            self.put,
            methods=["POST"],
            name="putContent",
            operation_id="putContent",
            status_code=201,
            **documents.PUT,
        )
        router.add_api_route(
            "/{name}",
            self.get,
            methods=["GET"],
            name="getContent",
            operation_id="getContent",
            **documents.GET,
        )
        return router

    async def put(self, request: Request, writer: Writer) -> Response:
        """Keep JSON as it is written; give what an event's `dataref` has to be."""
        body = await read_body(request)
        self.pressure.check()
        value = await parsed(request, body)
        if len(body) > self.max_data_bytes:
            raise too_large(len(body), self.max_data_bytes)

        async def work(connection: AsyncConnection) -> Content:
            return await contents.keep(connection, writer.tenant, body.decode(), value)

        kept = await transact(self.engine, work)
        shown = {"dataref": kept.dataref, "size": kept.size, "tenant": writer.tenant}
        return ExactResponse(shown, 201, {"Location": kept.dataref})

    async def get(self, reader: Reader, name: str) -> Response:
        """Give the JSON that a `dataref` leads to, as it was written."""
        async with self.engine.begin() as connection:
            text = await contents.find(connection, reader.tenant, name)
        if text is None:
            raise NotFound(f"there is no content {name[:100]!r}, or it was kept for long enough")
        # Whoever wrote it may be anybody: no browser shall take it for a page.
        headers = {"X-Content-Type-Options": "nosniff"}
        return Response(text, headers=headers, media_type="application/json")


def too_large(size: int, most: int) -> Rejected:
    """Refuse data that no job could have."""
    detail = f"found {size} bytes of data, expected at most {most}; put large content elsewhere"
    return Rejected("data_too_large", detail, status=413, flaws=[Flaw("/data", detail)])
