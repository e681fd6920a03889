"""The producer's HTTP side, put together."""

from typing import Any

from filaviva.http import Application
from filaviva_producer import documents
from filaviva_producer.reading import Reading
from filaviva_producer.submitting import Submitting


class Api(Application):
    """POST and GET /v1/jobs…, with health and OpenAPI."""

    def __init__(self, submitting: Submitting, reading: Reading, **rest: Any) -> None:
        super().__init__(title="Filaviva producer", **rest)
        self.add_route("/v1/jobs", submitting.post, methods=["POST"], include_in_schema=False)
        self.include_router(reading.router())

    def openapi(self) -> dict[str, Any]:
        """Describe the API, the plain route included."""
        if self.openapi_schema is None:
            documents.describe(super().openapi())
        return super().openapi()
