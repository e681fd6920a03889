"""The producer's HTTP side, put together."""

from typing import Any, Protocol

from fastapi import APIRouter

from filaviva.http import Application
from filaviva_producer import submission_documents
from filaviva_producer.submitting import Submitting


class Routes(Protocol):
    """Some of the routes, with their means."""

    def router(self) -> APIRouter:
        """Give the routes."""
        ...


class Api(Application):
    """/v1/jobs, /v1/schedules and what belongs to them, with health and OpenAPI."""

    def __init__(self, submitting: Submitting, *several: Routes, **rest: Any) -> None:
        super().__init__(title="Filaviva producer", **rest)
        self.add_route("/v1/jobs", submitting.post, methods=["POST"], include_in_schema=False)
        for routes in several:
            self.include_router(routes.router())

    def openapi(self) -> dict[str, Any]:
        """Describe the API, the plain route included."""
        if self.openapi_schema is None:
            submission_documents.describe(super().openapi())
        return super().openapi()
