"""Leave out of spans what may hold payloads, prompts, answers or secrets, whoever recorded it.

Instrumentations of libraries write texts of errors, queries of URLs and literals of statements into
spans. That happens where the spans leave, in the exporter's thread: nothing of ours waits for it.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Status

log = structlog.get_logger("filaviva")

_QUERIES: Final = frozenset({"db.statement", "db.query.text"})
_URLS: Final = frozenset({"url.full", "http.url", "http.target", "url.original"})
_LEFT_OUT: Final = frozenset(
    {"url.query", "exception.message", "exception.stacktrace", "enduser.id", "enduser.credentials"}
)
# What was said to a model and by it; OpenTelemetry's own switch lets it through.
_CONTENT: Final = re.compile(
    r"gen_ai\.(?:(?:input|output)\.messages|system_instructions|prompt|completion|tool\.definitions"
    r"|tool\.call\.(?:arguments|result)|tool\.message|content)(?:\..*)?"
    r"|(?:traceloop\.entity|input|output|llm\.(?:prompts|completions))\..*|(?:input|output)\.value"
)
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_LITERAL: Final = re.compile(
    r"\$(\w*)\$.*?\$\1\$|[eE]?'(?:[^'\\]|''|\\.)*'|(?<![\w$])\d+(?:\.\d+)?", re.DOTALL
)
# Whoever has the path of such a hook may write there.
_HOOK: Final = re.compile(
    r"(//(?:hooks\.slack\.com/(?:services|workflows|triggers)|[\w.]*discord(?:app)?\.com/api/webhooks)/).+"
)
_USER: Final = re.compile(r"//[^/@?#]*@")


class Scrubbed(SpanExporter):
    """Hand spans on without what does not belong into them."""

    def __init__(self, exporter: SpanExporter, *, contents: bool | None = None) -> None:
        self._exporter = exporter
        self._contents = _asked_for() if contents is None else contents
        self._losing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export what is left of each; say so once when nobody takes them, and once when again."""
        result = self._exporter.export([self._scrubbed(span) for span in spans])
        losing = result is not SpanExportResult.SUCCESS
        if losing and not self._losing:
            log.warning("traces are lost: where they go does not take them", spans=len(spans))
        elif self._losing and not losing:
            log.info("traces are taken again")
        self._losing = losing
        return result

    def shutdown(self) -> None:
        """End the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what waits."""
        return self._exporter.force_flush(timeout_millis)

    def _scrubbed(self, span: ReadableSpan) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=self._kept(span.attributes or {}),
            events=[
                Event(one.name, self._kept(one.attributes or {}), one.timestamp)
                for one in span.events
            ],
            links=span.links,
            kind=span.kind,
            status=Status(span.status.status_code),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )

    def _kept(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _without_values(name, value)
            for name, value in attributes.items()
            if name not in _LEFT_OUT and (self._contents or not _CONTENT.fullmatch(name))
        }


def _without_values(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name in _QUERIES:
        return _LITERAL.sub("?", value)
    if name in _URLS:
        bare = _USER.sub("//", value.partition("?")[0].partition("#")[0], count=1)
        return _HOOK.sub(r"\1?", bare)
    return value


def _asked_for() -> bool:
    return os.environ.get(_CAPTURE, "").lower() in {"true", "span_only", "span_and_event"}
