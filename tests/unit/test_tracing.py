"""Traces: off unless asked for, sampled as asked for, and silent about what jobs are about."""

import contextvars
import re
import subprocess
import sys
import timeit
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_ON,
    ParentBased,
    ParentBasedTraceIdRatio,
    TraceIdRatioBased,
)
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from structlog.testing import capture_logs

from filaviva import tracing
from filaviva.broker.messages import Outgoing
from filaviva.errors import ConfigurationError
from filaviva.telemetry import export
from filaviva.telemetry.export import traced, wanted
from filaviva.telemetry.logs import speak_of
from filaviva.telemetry.sampling import Following
from filaviva.telemetry.scrubbing import Scrubbed
from filaviva.tracing import contexts, destinations, names
from filaviva.tracing.ids import attempt
from filaviva.tracing.told import Attempted
from fixtures.spans import Kept, provider

SUCCESS, FAILURE = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
JOB = UUID("01a22c6f-284f-75c3-9513-aa4be2ca7413")


def outgoing(follows: str | None) -> Outgoing:
    return Outgoing(
        exchange="filaviva.delay.l03",
        routing_key="0.0.0.0.0.0.0.0.1.0.0.llm",
        body=b"{}",
        message_id="m",
        headers={"other": 1},
        follows=follows,
    )


def test_the_names_are_those_of_the_conventions() -> None:
    known = {
        value
        for module in (messaging_attributes, gen_ai_attributes, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {
        value
        for name, value in vars(names).items()
        if name.isupper() and not value.startswith("filaviva.") and name != "RABBITMQ"
    }
    assert len(ours) > 15
    assert ours <= known
    system = messaging_attributes.MessagingSystemValues.RABBITMQ.value
    assert ("messaging.system", system) == (names.SYSTEM, names.RABBITMQ)


def test_destinations_are_few_whatever_the_pause() -> None:
    assert destinations.sent("filaviva.jobs", "llm") == "filaviva.jobs:llm"
    assert destinations.sent("filaviva.unroutable", "") == "filaviva.unroutable"
    assert destinations.sent("", "") == "amq.default"
    pause = "0." * 27 + "1.llm"
    assert destinations.sent("filaviva.delay.l00", pause) == "filaviva.delay.l00:*.llm"
    assert destinations.received("x", "llm", "work.llm") == "x:llm:work.llm"
    assert destinations.received("x", "llm", "llm") == "x:llm"


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
    ],
)
def test_traces_are_off_unless_a_variable_names_where_they_go(
    environment: dict[str, str],
    asked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert wanted(environment) is asked


def test_a_service_that_does_not_trace_imports_nothing_for_it() -> None:
    program = (
        "import sys, filaviva_worker.__main__, filaviva_retry_scheduler.__main__\n"
        "import filaviva.publishing, filaviva.client\n"
        "print([m for m in sys.modules if m.startswith(('opentelemetry.sdk', "
        "'opentelemetry.exporter', 'opentelemetry.instrumentation', 'google.protobuf'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_wrong_variables_end_the_start_with_what_was_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "morse")
    with _refused("found 'morse', expected http/protobuf or grpc"), traced("worker"):
        pass
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nobody")
    with _refused("found no exporter 'nobody'"), traced("worker"):
        pass
    monkeypatch.setattr(export, "start", _missing)
    with _refused("pip install 'filaviva[traces]'"), traced("worker"):
        pass


def _refused(why: str) -> Any:
    return pytest.raises(ConfigurationError, match=re.escape(why))


def _missing(_: str) -> None:
    raise ModuleNotFoundError("opentelemetry.sdk")


def test_what_is_asked_of_everybody_costs_nothing_measurable_while_nobody_traces() -> None:
    assert tracing.spans is None

    class Job:
        id, type, attempt, correlation_id = JOB, "t", 1, "c"

    def one_job() -> None:  # what the lanes do for each job, and for each batch
        speak_of(Job())
        if tracing.spans is not None:
            raise AssertionError

    measured = contextvars.copy_context().run(timeit.repeat, one_job, number=10_000, repeat=5)
    seconds = min(measured) / 10_000
    assert seconds < 5e-6  # 0.3 µs on an idle machine; a job costs some hundred
    with tracing.creating("filaviva.jobs") as made:
        assert made.traceparent is None
    assert tracing.carried() is None


def test_an_attempt_has_the_same_ids_wherever_they_are_computed() -> None:
    assert attempt(JOB, 1) == attempt(UUID(str(JOB)), 1)
    assert len({attempt(JOB, 1).trace, attempt(JOB, 2).trace, attempt(uuid4(), 1).trace}) == 3


def test_traceparents_are_read_as_they_are_written() -> None:
    context = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(3))
    assert contexts.read(contexts.write(context)) == context
    for broken in (None, "", "00-0-0-00", 5, b"00", "00-" + "0" * 32 + "-" + "1" * 16 + "-01"):
        assert contexts.read(broken) is None


def test_a_message_says_in_which_span_it_was_published(kept: Kept) -> None:
    assert tracing.spans is not None
    parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    unsampled = "00-" + "c" * 32 + "-" + "b" * 16 + "-00"
    spans = tracing.spans.publishing([outgoing(parent), outgoing(unsampled), outgoing(None)])
    told = spans.traceparent(0)
    assert told is not None
    assert told[3:35] == "a" * 32
    assert told[36:52] != "b" * 16
    assert spans.traceparent(1) is None
    assert spans.traceparent(2) is None
    spans.ended(["Unroutable", None, None])
    (span,) = kept.spans
    assert span.name == "publish filaviva.delay.l03:*.llm"
    assert span.attributes is not None
    assert span.attributes["error.type"] == "Unroutable"
    assert not span.status.is_ok


def test_attempts_are_kept_as_the_creation_of_their_job_was() -> None:
    exporter = Kept()
    for sampler, flag, expected in (
        (ParentBasedTraceIdRatio(0.0), "01", True),
        (ParentBasedTraceIdRatio(1.0), "00", False),
        (ParentBasedTraceIdRatio(0.0), None, False),
        (ParentBasedTraceIdRatio(1.0), None, True),
        (TraceIdRatioBased(0.0), "01", False),  # who does not ask the parent asks no link
    ):
        tracing.follow(provider(exporter, sampler))
        assert tracing.spans is not None
        origin = None if flag is None else f"00-{'a' * 32}-{'b' * 16}-{flag}"
        for number in (1, 2):
            tracing.spans.attempt(
                Delivered(origin, number), Delivered(origin, number), "work.llm"
            ).end("succeeded")
        assert [len(exporter.spans), expected] == [2 if expected else 0, expected]
        if flag is not None and expected:
            attempted = Attempted(job_id=JOB, number=2, origin=origin)
            assert tracing.spans.exemplar(attempted) == {
                "trace_id": f"{attempt(JOB, 2).trace:032x}"
            }
        exporter.spans.clear()
    tracing.forget()


class Delivered:
    """A job and the delivery that brought it, as far as a span needs them."""

    def __init__(self, origin: str | None, number: int) -> None:
        self.id, self.type, self.version, self.attempt = JOB, "t", 1, number
        self.correlation_id, self.tenant, self.waited = "c", "default", 0.1
        self.traceparent, self.tracestate = origin, None
        self.exchange, self.routing_key, self.tag, self.message_id = "x", "llm", 1, "m"
        self.headers: dict[str, Any] = {}


def test_a_poll_of_the_database_begins_no_trace() -> None:
    sampler = Following(ParentBased(ALWAYS_ON))
    lone = sampler.should_sample(None, 1, "SELECT", SpanKind.CLIENT)
    assert not lone.decision.is_sampled()
    assert sampler.should_sample(None, 1, "replay", SpanKind.PRODUCER).decision.is_sampled()
    dropped = Link(SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(0)))
    assert not sampler.should_sample(
        None, 1, "process", SpanKind.CONSUMER, None, [dropped]
    ).decision.is_sampled()


def test_what_instrumentations_quote_is_left_out() -> None:
    exporter = Kept()
    tracer = provider(exporter).get_tracer("a library")
    told = {
        "db.query.text": "SELECT $1, 'canary''s', 4711, $$canary$$ FROM t2",
        "url.full": "https://user:canary@example.com/a?key=canary#canary",
        "http.url": "https://hooks.slack.com/services/T0/B0/canary",
        "url.query": "key=canary",
        "gen_ai.prompt.0.content": "canary",
        "gen_ai.input.messages": "canary",
        "gen_ai.usage.input_tokens": 3,
    }
    with suppress(ValueError), tracer.start_as_current_span("call", attributes=told):
        raise ValueError("canary")
    (left,) = exporter.spans
    assert "canary" not in left.to_json()
    assert left.attributes is not None
    assert left.attributes["db.query.text"] == "SELECT $1, ?, ?, ? FROM t2"
    assert left.attributes["url.full"] == "https://example.com/a"
    assert left.attributes["http.url"] == "https://hooks.slack.com/services/?"
    assert left.attributes["gen_ai.usage.input_tokens"] == 3
    (event,) = left.events
    assert event.attributes == {"exception.type": "ValueError", "exception.escaped": "False"}
    assert not left.status.is_ok


def test_that_nobody_takes_the_traces_is_told_once() -> None:
    class Deaf(Kept):
        results = iter([FAILURE, FAILURE, SUCCESS, SUCCESS, FAILURE])

        def export(self, _: Sequence[ReadableSpan]) -> SpanExportResult:
            return next(self.results)

    exporter = Scrubbed(Deaf())
    with capture_logs() as told:
        for _ in range(5):
            exporter.export([])
    lost = "traces are lost: where they go does not take them"
    assert [line["event"] for line in told] == [lost, "traces are taken again", lost]


def test_what_is_said_to_models_is_kept_where_opentelemetry_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    exporter = Kept()
    with provider(exporter).get_tracer("a library").start_as_current_span("chat") as span:
        span.set_attribute("gen_ai.input.messages", "a prompt")
    assert exporter.spans[0].attributes == {"gen_ai.input.messages": "a prompt"}
