"""A span for each request, if this process is traced; the framework knows how."""

from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from filaviva import tracing
from filaviva.telemetry import logs

# Asked for every few seconds, and streams, whose spans would last as long as somebody watches.
_LEFT_OUT = (r"^[^?]*/(?:healthz|readyz)(?:\?|$)", r"^[^?]*/v1/jobs/[^/?]+/events(?:\?|$)")


def traced(app: ASGIApp) -> ASGIApp:
    """Give the app with spans around its requests; as it is while nobody traces."""
    if tracing.spans is None:
        return app
    from starlette.middleware.opentelemetry import OpenTelemetryMiddleware  # noqa: PLC0415 - slow

    provider = tracing.spans.provider
    return OpenTelemetryMiddleware(_Named(app), excluded_urls=_LEFT_OUT, tracer_provider=provider)


@dataclass(frozen=True, slots=True)
class _Path:
    path_format: str


class _Named:
    """Name the span on lines of the log, and the plain routes: the framework does its own alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if tracing.spans is not None:
            logs.answer_within(tracing.spans.ids())
        try:
            await self._app(scope, receive, send)
        finally:
            if "route" not in scope and "endpoint" in scope and not scope.get("path_params"):
                scope["route"] = _Path(scope["path"])
