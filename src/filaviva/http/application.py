"""The FastAPI application that our HTTP services are made of."""

import asyncio
from typing import Any

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from filaviva.http import problems
from filaviva.http.auth import Authenticator
from filaviva.http.bodies import BodyLimits
from filaviva.http.metered import Metered
from filaviva.http.queries import refuse_unknown, strict_query
from filaviva.http.request_ids import RequestIds
from filaviva.http.spans import traced
from filaviva.telemetry.endpoint import Problems, readiness
from filaviva.telemetry.metrics import Metrics


class Application(FastAPI):
    """FastAPI with our errors, limits, ids and health; nothing of it loads code from elsewhere."""

    def __init__(  # noqa: PLR0913 - one place where a service's HTTP side is put together
        self,
        *,
        title: str,
        version: str,
        authenticator: Authenticator,
        ready: Problems,
        stopping: asyncio.Event,
        body_limits: BodyLimits | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(
            title=title,
            version=version,
            docs_url=None,  # the pages that FastAPI serves load scripts from a foreign host
            redoc_url=None,
            redirect_slashes=False,
            telemetry={"tracing": False, "metrics": False, "logs": False},
            dependencies=[Depends(strict_query)],
        )
        self.state.authenticator = authenticator
        self.state.body_limits = body_limits or BodyLimits()
        self.state.stopping = stopping
        self._ready = ready
        self._metrics = metrics
        problems.install(self)
        self.add_route("/healthz", self._healthz, include_in_schema=False)
        self.add_route("/readyz", self._readyz, include_in_schema=False)

    def build_middleware_stack(self) -> ASGIApp:
        """Put the request ids around everything, the answer to an unexpected error included."""
        around = RequestIds(traced(super().build_middleware_stack()))
        if self._metrics is None:
            return around
        paths = (getattr(route, "path", "{") for route in self.routes)
        return Metered(around, self._metrics, plain=(path for path in paths if "{" not in path))

    def openapi(self) -> dict[str, Any]:
        """Describe the API, with the shape of our errors."""
        described = super().openapi()
        schemas = described.setdefault("components", {}).setdefault("schemas", {})
        schemas["Problem"] = problems.SCHEMA
        return described

    async def _healthz(self, request: Request) -> Response:
        refuse_unknown(request, ())
        return Response(b'{"status":"alive"}', media_type="application/json")

    async def _readyz(self, request: Request) -> Response:
        refuse_unknown(request, ())
        status, body = await readiness(self._ready)
        return Response(body, status, media_type="application/json")
