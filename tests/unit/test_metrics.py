"""The public metrics: names and labels are promises, and what is known begins at 0."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from filaviva import tracing
from filaviva.cli.reference.metrics import names
from filaviva.outcome import Done, ErrorClass
from filaviva.telemetry import known
from filaviva.telemetry.bounded import OTHER, Bounded
from filaviva.telemetry.figures import Figures
from filaviva.telemetry.metrics import Metrics
from filaviva.tracing.ids import PlannedIds, attempt
from filaviva_dlq_handler.api import DeadReason
from filaviva_retry_scheduler import retention
from filaviva_retry_scheduler.shares import CLASSES
from filaviva_worker.claim import Claimed, Verdict
from filaviva_worker.facts import Facts, Settled
from filaviva_worker.live import Rung

PROMISED = {
    "filaviva_jobs_submitted_total": ("type", "source", "result"),
    "filaviva_job_attempts_total": ("type", "outcome", "error_class"),
    "filaviva_jobs_finished_total": ("type", "state"),
    "filaviva_job_attempt_duration_seconds": ("type", "outcome"),
    "filaviva_job_queue_wait_seconds": ("type",),
    "filaviva_job_end_to_end_seconds": ("type", "state"),
    "filaviva_jobs": ("type", "state"),
    "filaviva_job_oldest_timestamp_seconds": ("type", "state"),
    "filaviva_retry_pause_seconds": ("type",),
    "filaviva_retry_lateness_seconds": (),
    "filaviva_dead_letters_open": ("type", "reason"),
    "filaviva_dead_letters_total": ("type", "reason"),
    "filaviva_replays_total": ("outcome",),
    "filaviva_outbox_pending": (),
    "filaviva_outbox_oldest_timestamp_seconds": (),
    "filaviva_publish_confirm_seconds": ("outcome",),
    "filaviva_duplicates_suppressed_total": ("consumer", "cause"),
    "filaviva_lease_lost_total": ("type",),
    "filaviva_leases_expired_total": ("type",),
    "filaviva_wakeups_reissued_total": ("cause",),
    "filaviva_consumer_rebuilt_total": ("cause",),
    "filaviva_worker_slots": ("state",),
    "filaviva_event_loop_lag_seconds": (),
    "filaviva_contract_violations_total": ("type", "version", "reason"),
    "filaviva_contract_upcasts_total": ("type", "from", "to"),
    "filaviva_llm_tokens_total": ("provider", "model", "kind"),
    "filaviva_llm_cost_usd_total": ("provider", "model", "type"),
    "filaviva_job_cost_usd": ("type",),
    "filaviva_notifications_total": ("channel", "outcome"),
    "filaviva_step_attempts_total": ("type", "step", "outcome"),
    "filaviva_cancel_seconds": ("rung",),
    "filaviva_steps_after_cancel_total": (),
    "filaviva_sse_clients": (),
    "filaviva_build_info": (),
}
ROOT = Path(__file__).parents[2]
NEVER = {"tenant", "user", "subject", "id", "job", "job_id", "key", "worker"}


def test_every_promised_metric_is_there_with_its_labels() -> None:
    found = {name: labels for name, _, labels in names()}

    assert {name: found.get(name) for name in PROMISED} == PROMISED


def test_no_label_names_a_tenant_a_user_or_an_id() -> None:
    assert not [name for name, _, labels in names() if NEVER & set(labels)]


def test_the_words_of_labels_are_those_of_the_code() -> None:
    lost_and_canceled = {"lost", "canceled"}

    assert {*known.RETRYABLE, *known.TERMINAL} == set(get_args(ErrorClass)) - lost_and_canceled
    assert set(known.REASONS) == set(get_args(DeadReason))
    assert set(known.RUNGS) == {rung.value for rung in Rung}
    assert set(known.NOT_RUN) == {verdict.value for verdict in Verdict} - {"claimed"}
    assert known.PRIORITIES == CLASSES
    removed = re.findall(r'_count\(\s*"(\w+)"', Path(retention.__file__).read_text())
    assert set(known.REMOVED) == set(removed)


@pytest.mark.parametrize("service", known.ALWAYS)
def test_what_a_service_can_name_begins_at_zero(service: known.Service) -> None:
    metrics = Metrics()

    metrics.know(service, {"a.b": [1]})

    samples = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith("filaviva_") and not sample.name.endswith(("_created", "_info"))
    }
    assert len(samples) > 60
    assert not any(samples.values())


@pytest.mark.parametrize("service", ["producer", "worker", "retry-scheduler", "dlq-handler"])
def test_what_a_service_counts_begins_at_zero_unless_users_name_it(service: known.Service) -> None:
    labelled = {name for name, one in vars(Metrics()).items() if getattr(one, "_labelnames", ())}
    sources = (ROOT / "services" / service / "src").rglob("*.py")
    named = {word for one in sources for word in re.findall(r"metrics\.(\w+)", one.read_text())}
    counted = named & labelled
    tables = (known.ALWAYS, known.BY_TYPE, known.BY_VERSION)
    begun = {name for table in tables for name, *_ in table.get(service, ())}

    assert counted - begun <= {"llm_cost", "llm_tokens", "step_attempts", "contract_upcasts"}


def test_a_first_dead_letter_of_a_known_type_is_an_increase() -> None:
    metrics, labels = Metrics(), {"type": "a.b", "reason": "terminal"}
    metrics.know("dlq-handler", {"a.b": [1]})

    before = metrics.registry.get_sample_value("filaviva_dead_letters_total", labels)
    metrics.dead_letters.labels(**labels).inc()

    assert before == 0
    assert metrics.registry.get_sample_value("filaviva_dead_letters_total", labels) == 1


def test_values_that_users_choose_are_bounded() -> None:
    bounded = Bounded(2)

    assert [bounded(each) for each in ("a", "b", "c", "a", "", "b")] == [
        "a",
        "b",
        OTHER,
        "a",
        OTHER,
        "b",
    ]
    assert Bounded(2)("x" * 1000) == OTHER


def test_figures_are_shown_while_they_are_fresh_and_ours() -> None:
    registry = CollectorRegistry()
    figures = Figures(registry)

    assert registry.get_sample_value("filaviva_outbox_pending") is None
    figures.tell({"outbox_pending": {(): 3}})
    assert registry.get_sample_value("filaviva_outbox_pending") == 3
    figures.forget()
    assert registry.get_sample_value("filaviva_outbox_pending") is None


def test_old_figures_are_not_shown() -> None:
    registry = CollectorRegistry()
    figures = Figures(registry, patience=-1)

    figures.tell({"outbox_pending": {(): 3}})

    assert registry.get_sample_value("filaviva_outbox_pending") is None
    with pytest.raises(KeyError, match="expected names of FIGURES"):
        figures.tell({"nonsense": {}})


def test_the_end_of_an_attempt_leads_to_its_trace() -> None:
    provider = TracerProvider(sampler=ALWAYS_ON, id_generator=PlannedIds())
    metrics = Metrics()
    job = Claimed(**dict.fromkeys((each.name for each in fields(Claimed)), 0) | {  # type: ignore[arg-type]
        "id": UUID(int=1), "type": "a.b", "version": 1, "attempt": 1, "paused": False,
        "traceparent": None,
    })  # fmt: skip
    tracing.follow(provider)
    try:
        Facts(metrics).settled([Settled(job, Done(), 0.2, counted=True)])
    finally:
        tracing.forget()

    page = openmetrics(metrics.registry).decode()
    trace = f"{attempt(UUID(int=1), 1).trace:032x}"
    lines = [line for line in page.splitlines() if trace in line]
    assert [line.partition("{")[0] for line in lines] == [
        "filaviva_job_attempt_duration_seconds_bucket",
        "filaviva_job_end_to_end_seconds_bucket",
    ]
