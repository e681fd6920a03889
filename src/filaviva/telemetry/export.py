"""Send traces where the OTEL_ variables say; a service that has none imports nothing for it."""

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any, Final

import structlog

from filaviva import tracing
from filaviva.errors import ConfigurationError

log = structlog.get_logger("filaviva")

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_NEEDED: Final = "the extra is not installed: pip install 'filaviva[traces]'"
# These do work with the versions that we run, whatever they say: our tests look at their spans.
_TRIED: Final = frozenset({"sqlalchemy"})
# What waits for a collector that does not answer must not keep a service from ending.
_LAST_SECONDS: Final = 3.0
# Ours know what a request or a message is: those would tell it a second time.
_OURS: Final = frozenset({"filaviva", "fastapi", "starlette", "asgi", "aio-pika"})


def wanted(environment: Mapping[str, str]) -> bool:
    """Tell whether the OTEL_ variables name a place for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get(_EXPORTER, "").strip().lower()
    if exporter:
        return exporter != "none"
    return any(environment.get(name) for name in _ENDPOINTS)


@contextmanager
def traced(service: str) -> Iterator[None]:
    """Trace what happens in the block, if that is wanted; what waits at its end is sent."""
    if not wanted(os.environ):
        yield
        return
    try:
        provider = start(service)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"OTEL_ variables ask for traces, but {_NEEDED}") from missing
    try:
        yield
    finally:
        tracing.forget()
        # Not awaited beyond that: shutdown waits for its own thread, for up to half a minute.
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(_LAST_SECONDS)


def start(service: str) -> Any:
    """Begin to trace this process; give the provider, which has to be shut down."""
    from opentelemetry import trace  # noqa: PLC0415 - the extra `traces`
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    from filaviva.telemetry.sampling import Following  # noqa: PLC0415
    from filaviva.telemetry.scrubbing import Scrubbed  # noqa: PLC0415
    from filaviva.tracing.ids import PlannedIds  # noqa: PLC0415

    # Instrumentations ask for it once, when they are first used: the conventions of today.
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http,database")
    provider = TracerProvider(
        resource=Resource.create(_resource(service)), id_generator=PlannedIds()
    )
    provider.sampler = Following(provider.sampler)
    # It says so at every try; we do when it begins and ends.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    provider.add_span_processor(BatchSpanProcessor(Scrubbed(_exporter())))
    trace.set_tracer_provider(provider)
    tracing.follow(provider)
    instrument()
    return provider


def instrument() -> None:
    """Turn on the instrumentations that are installed, as `opentelemetry-instrument` does."""
    disabled = os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "")
    left_out = _OURS | {name.strip() for name in disabled.split(",")}
    if "*" in left_out:
        return
    for found in entry_points(group="opentelemetry_instrumentor"):
        if found.name not in left_out:
            _instrument(found)


def _instrument(found: EntryPoint) -> None:
    from opentelemetry.instrumentation.dependencies import get_dependency_conflicts  # noqa: PLC0415

    try:
        instrumentor = found.load()()
        wanted = instrumentor.instrumentation_dependencies()
        if found.name in _TRIED or get_dependency_conflicts(wanted) is None:
            instrumentor.instrument(skip_dep_check=True)
    except ModuleNotFoundError:
        pass  # it is for a library that is not installed
    except Exception as broken:  # noqa: BLE001 - the border to code that is not ours
        log.warning("not instrumented", name=found.name, error_code=type(broken).__name__)


def _resource(service: str) -> dict[str, str]:
    told = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    said = {"service.version": version("filaviva")}
    if "OTEL_SERVICE_NAME" not in os.environ and "service.name=" not in told:
        said |= {"service.name": f"filaviva-{service}"}
    if "service.namespace=" not in told:
        said |= {"service.namespace": "filaviva"}
    return said


def _exporter() -> Any:
    name = os.environ.get(_EXPORTER, "").strip().lower() or "otlp"
    if name == "otlp":
        protocol = next(filter(None, map(os.environ.get, _PROTOCOLS)), "http/protobuf")
        if protocol not in _OTLP:
            expected = " or ".join(_OTLP)
            raise ConfigurationError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL: found {protocol!r}, expected {expected}"
            )
        name = _OTLP[protocol]
    found = tuple(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        raise ConfigurationError(
            f"{_EXPORTER}: found no exporter {name!r}, expected otlp, console, none, or one that "
            f"is installed (grpc: pip install opentelemetry-exporter-otlp-proto-grpc)"
        )
    return found[0].load()()
