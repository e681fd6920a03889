"""POST /v1/jobs/{id}/cancel: stop a job, and say truly how far that is.

Before: somebody wants no more of a job.
After: `canceled` if it had not begun; `cancel_requested` until its worker has stopped it.
May happen twice: yes, until the job is final; then it is refused (`job_final`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.responses import Response

from filaviva.database.transaction import transact
from filaviva.http import ExactResponse, allowed, documented, optional_json_body
from filaviva.operations.cancel import cancel_one
from filaviva.operations.jobs import Reach
from filaviva.operations.keys import Principal
from filaviva.operations.stop import Cancellation
from filaviva.outbox import OutboxRow
from filaviva.relay import unhurried
from filaviva.telemetry.metrics import Metrics
from filaviva_producer import documents
from filaviva_producer.reading import identity

Canceler = Annotated[Principal, Depends(allowed("jobs:cancel"))]


class Wish(BaseModel):
    """The body, which may be left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str | None = Field(default=None, max_length=500, pattern=r"^[^\x00]*$")


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": Wish.model_json_schema(),
                "example": {"reason": "the customer withdrew"},
            }
        },
    }
}


@dataclass(frozen=True, slots=True)
class Canceling:
    """The route's means."""

    engine: AsyncEngine
    metrics: Metrics
    hand_over: Callable[[Sequence[OutboxRow]], None]
    hurry: Callable[[], None] = unhurried

    def router(self) -> APIRouter:
        """Give the route."""
        router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        router.add_api_route(
            "/{job_id}/cancel",
            self.cancel,
            methods=["POST"],
            name="cancelJob",
            operation_id="cancelJob",
            status_code=202,
            response_model=documents.Canceled,
            responses=documented(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 500, 503),
            openapi_extra=_BODY,
        )
        return router

    async def cancel(
        self,
        caller: Canceler,
        job_id: str,
        wish: Annotated[Wish, Depends(optional_json_body(Wish))],
    ) -> Response:
        """Cancel a job, and the items of a batch with it."""
        wanted, reach = identity(job_id), Reach(caller.tenant, caller.types)
        done = await self.stop(wanted, reach, author=caller.key_id, reason=wish.reason)
        address = f"/v1/jobs/{wanted}"
        shown = {
            "jobId": str(wanted),
            "status": done.state(wanted),
            "statusUrl": address,
            "canceled": len(done.canceled),
            "requested": len(done.requested),
        }
        return ExactResponse(shown, status_code=202, headers={"Location": address})

    async def stop(
        self, job_id: UUID, reach: Reach, *, author: str, reason: str | None = None
    ) -> Cancellation:
        """Cancel a job within reach; Rejected if it has ended."""

        async def work(connection: AsyncConnection) -> Cancellation:
            return await cancel_one(connection, job_id, reach, author=author, reason=reason)

        done = await transact(self.engine, work)
        self.hand_over(done.messages)
        if done.canceled:
            self.hurry()  # who wants to be told of an end has a row that nobody hands over
        self._count(done)
        return done

    def _count(self, done: Cancellation) -> None:
        for job in done.canceled:
            self.metrics.jobs_finished.labels(job.type, "canceled").inc()
            self.metrics.end_to_end.labels(job.type, "canceled").observe(job.age or 0)
