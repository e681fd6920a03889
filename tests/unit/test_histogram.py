"""The histogram of the hot path exposes what the library's would."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from filaviva.telemetry.histogram import LoopHistogram

BUCKETS = (0.005, 0.5, 1, 60, 14400)


@given(some.lists(some.floats(0, 20_000), max_size=30))
def test_it_exposes_what_the_library_exposes(amounts: list[float]) -> None:
    pages = []
    for kind in (Histogram, LoopHistogram):
        registry = CollectorRegistry()
        made = kind("wait_seconds", "Waited", ["type"], registry=registry, buckets=BUCKETS)
        for amount in (*amounts, *BUCKETS):
            made.labels("a.b").observe(amount)
        lines = generate_latest(registry).decode().splitlines()
        pages.append([line for line in lines if "_created" not in line])

    assert pages[0] == pages[1]


@pytest.mark.parametrize(("amount", "bucket"), [(0.2, "0.5"), (99999, "+Inf")])
def test_an_exemplar_leads_from_a_bucket_to_its_trace(amount: float, bucket: str) -> None:
    registry = CollectorRegistry()
    made = LoopHistogram("wait_seconds", "Waited", registry=registry, buckets=BUCKETS)

    made.observe(amount, {"trace_id": "a" * 32})

    (family,) = text_string_to_metric_families(openmetrics(registry).decode())
    found = {s.labels["le"]: s.exemplar for s in family.samples if s.exemplar is not None}
    assert {le: (e.labels, e.value) for le, e in found.items()} == {
        bucket: ({"trace_id": "a" * 32}, amount)
    }
