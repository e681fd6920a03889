"""What scrapers are told, whatever they ask for and however often."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from filaviva.telemetry.exposing import Exposing
from filaviva.telemetry.metrics import Metrics

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
)


class Clock:
    """Writing takes a tenth of a second on it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


def test_exemplars_are_told_to_who_reads_them() -> None:
    metrics = Metrics()
    metrics.queue_wait.labels("a.b").observe(0.2, {"trace_id": "0" * 31 + "1"})

    told = Exposing(metrics.registry)(PROMETHEUS)

    assert told.kind.startswith(b"application/openmetrics-text; version=1.0.0")
    families = {one.name: one for one in text_string_to_metric_families(told.body.decode())}
    samples = families["filaviva_job_queue_wait_seconds"].samples
    assert [one.exemplar.value for one in samples if one.exemplar] == [0.2]


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/plain;version=0.0.4", "text/plain;version=x", "\xff;;,q=zz"]
)
def test_everybody_else_gets_plain_text(accept: str) -> None:
    told = Exposing(Metrics().registry)(accept)

    assert told.kind.startswith(b"text/plain; version=0.0.4")
    assert b"filaviva_build_info{" in told.body


def test_a_version_that_is_none_is_no_error() -> None:
    assert Exposing(Metrics().registry)("application/openmetrics-text;version=banana").body


def test_who_asks_often_takes_a_tenth_of_the_time_at_most() -> None:
    metrics, clock = Metrics(), Clock()
    expose = Exposing(metrics.registry, clock)
    first = expose("")
    metrics.steps_after_cancel.inc()

    assert expose("") is first
    assert expose(PROMETHEUS) is not first
    clock.now += 1
    assert b"filaviva_steps_after_cancel_total 1.0" in expose("").body
