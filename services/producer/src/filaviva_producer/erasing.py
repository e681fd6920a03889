"""DELETE /v1/jobs/{id}/data: erase what a job knows of people; the facts stay.

Before: somebody may not be remembered any longer. After: `erasedAt`, or a problem
and all as it was.
May happen twice: yes; the first time counts.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response

from filaviva.database.transaction import transact
from filaviva.http import ExactResponse, allowed, documented
from filaviva.operations.erasure import erase
from filaviva.operations.figures import moment
from filaviva.operations.jobs import Reach
from filaviva.operations.keys import Principal
from filaviva_producer import documents
from filaviva_producer.reading import identity
from filaviva_producer.scheduling import author

Writer = Annotated[Principal, Depends(allowed("jobs:write"))]


@dataclass(frozen=True, slots=True)
class Erasing:
    """The route's means."""

    engine: AsyncEngine

    def router(self) -> APIRouter:
        """Give the route."""
        router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        router.add_api_route(
            "/{job_id}/data",
            self.erase,
            methods=["DELETE"],
            name="eraseJobData",
            operation_id="eraseJobData",
            response_model=documents.Erased,
            responses=documented(401, 403, 404, 409, 410, 422, 500, 503),
        )
        return router

    async def erase(self, writer: Writer, job_id: str) -> Response:
        """Erase data, result, steps' inputs and outputs, messages, subject and labels of a job."""
        wanted, reach = identity(job_id), Reach(writer.tenant, writer.types)
        done = await transact(
            self.engine, lambda on: erase(on, wanted, reach, author=author(writer))
        )
        shown = {"jobId": str(done.job_id), "erasedAt": moment(done.at), "items": done.items}
        return ExactResponse(shown)
