"""The metrics: names, kinds and labels are promises."""

from typing import Any, Final

from filaviva.telemetry.metrics import Metrics

_HEAD: Final = """\
# Metrics

<!-- written by `python -m filaviva.cli.reference` -->

Every service serves `/metrics` (Prometheus text) on its metrics port, beside `/healthz` and
`/readyz`. Names and labels are promises. No tenant, user or id is ever a label. Each process tells
what it has seen itself: sum over instances. A series appears with the first thing to count.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Write the reference page."""
    rows = [_row(metric) for metric in Metrics().registry._collector_to_names]  # noqa: SLF001 - the library lists them nowhere else
    return _HEAD + "\n".join(sorted(rows)) + "\n"


def _row(metric: Any) -> str:
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # noqa: SLF001 - as above
    suffix = {"counter": "_total", "info": "_info"}.get(metric._type, "")  # noqa: SLF001 - as above
    name = f"{metric._name}{suffix}"  # noqa: SLF001 - as above
    return f"| `{name}` | {metric._type} | {labels} | {metric._documentation} |"  # noqa: SLF001 - as above
