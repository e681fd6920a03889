"""The counter of the hot path exposes what the library's would."""

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from filaviva.telemetry.counter import LoopCounter


def test_it_exposes_what_the_library_exposes() -> None:
    pages = []
    for kind in (Counter, LoopCounter):
        registry = CollectorRegistry()
        made = kind("jobs_total", "Jobs", ["type"], registry=registry)
        made.labels("never")
        made.labels("a.b").inc()
        made.labels("a.b").inc(2.5)
        lines = generate_latest(registry).decode().splitlines()
        pages.append([line for line in lines if "_created" not in line])

    assert pages[0] == pages[1]


def test_it_takes_no_exemplar() -> None:
    made = LoopCounter("jobs_total", "Jobs", registry=CollectorRegistry())

    with pytest.raises(ValueError, match="a histogram keeps them"):
        made.inc(exemplar={"trace_id": "a"})
