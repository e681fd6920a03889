"""The metrics: names, kinds and labels are promises."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from prometheus_client.metrics import MetricWrapperBase

from filaviva.telemetry.figures import FIGURES
from filaviva.telemetry.metrics import Metrics

_HEAD: Final = """\
# Metrics

<!-- written by `python -m filaviva.cli.reference` -->

Every service serves `/metrics` (Prometheus text, or OpenMetrics with the trace ids of attempts as
exemplars) on its metrics port, beside `/healthz` and `/readyz`. Names and labels are promises.
No tenant, user or id is ever a label. What users name (steps, models) is told apart up to some
hundreds of values, the rest is `other`; a type that no app publishes is `unknown`.
Each process tells what it has seen itself: sum over instances. What can be named beforehand begins
at 0; a model or a step begins with its first call, which `increase` does not show.

| metric | kind | labels | meaning |
|---|---|---|---|
"""
_FIGURES: Final = """
## Counted in the database

One retry-scheduler counts these for all, every few seconds, and it alone shows them: take `max`
over instances. When it is gone another one counts within seconds. A `…_timestamp_seconds` is 0 if
nothing waits: `(time() - x) * (x > bool 0)` is the age. The state of a job that has not ended is
`queued` (due), `paused` (its time has not come), `parked` (waits for a reason to go), `running` or
`cancel_requested`.

| metric | kind | labels | meaning |
|---|---|---|---|
"""
_PROCESS: Final = """
Beside them stand the usual `process_` metrics: CPU, memory, open files, start.
"""


def page() -> str:
    """Write the reference page."""
    counted = [_row(f"filaviva_{f.name}", "gauge", f.labels, f.text) for f in FIGURES]
    return (
        _HEAD
        + _table([_described(each) for each in _own()])
        + _FIGURES
        + _table(counted)
        + _PROCESS
    )


def names() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Give name, kind and labels of every metric."""
    for metric in _own():
        yield _name(metric), metric._type, tuple(metric._labelnames)  # noqa: SLF001 - the library tells it nowhere else
    for figure in FIGURES:
        yield f"filaviva_{figure.name}", "gauge", figure.labels


def _own() -> list[Any]:
    collectors = Metrics().registry._collector_to_names  # noqa: SLF001 - as above
    return [each for each in collectors if isinstance(each, MetricWrapperBase)]


def _name(metric: Any) -> str:
    suffix = {"counter": "_total", "info": "_info"}.get(metric._type, "")  # noqa: SLF001 - as above
    return f"{metric._name}{suffix}"  # noqa: SLF001 - as above


def _described(metric: Any) -> str:
    return _row(_name(metric), metric._type, metric._labelnames, metric._documentation)  # noqa: SLF001 - as above


def _row(name: str, kind: str, labels: Sequence[str], text: str) -> str:
    return f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |"


def _table(rows: Sequence[str]) -> str:
    return "\n".join(sorted(rows)) + "\n"
