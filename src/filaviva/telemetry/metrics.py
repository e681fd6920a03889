"""The public metrics: names and labels are promises (docs/reference/metrics.md).

No tenant, user or id is ever a label.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Info,
    ProcessCollector,
)

from filaviva.telemetry.counter import LoopCounter
from filaviva.telemetry.figures import Figures
from filaviva.telemetry.histogram import LoopHistogram
from filaviva.telemetry.known import ALWAYS, BY_TYPE, BY_VERSION, Service, combinations

# Attempts and whole jobs may take hours; the last bucket is four of them.
LONG = (0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
CANCEL = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 3600, 14400)
# Long-polling answers after 20 s by design.
REQUEST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
USD = (0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 100)

NOTHING: Final[Mapping[str, Iterable[int]]] = MappingProxyType({})


class Metrics:
    """Every metric of one process, on a registry of its own."""

    def __init__(self, registry: CollectorRegistry | None = None, *, revision: str = "") -> None:
        self.registry = registry or CollectorRegistry()
        self.figures = Figures(self.registry)
        self._jobs()
        self._money()
        self._journey()
        self._worker()
        self._edge()
        ProcessCollector(registry=self.registry)
        build = Info("filaviva_build", "The running release", registry=self.registry)
        build.info({"version": version("filaviva"), "revision": revision})

    def know(self, service: Service, types: Mapping[str, Iterable[int]] = NOTHING) -> None:
        """Begin the series that this service will count, so that the first event is an increase.

        `types` are the published ones, with their versions.
        """
        for name, *values in ALWAYS.get(service, ()):
            self._begin(name, combinations(values))
        for name, *values in BY_TYPE.get(service, ()):
            self._begin(name, combinations([tuple(types), *values]))
        versions = [(kind, str(number)) for kind, numbers in types.items() for number in numbers]
        for name, *values in BY_VERSION.get(service, ()):
            self._begin(name, combinations([versions, *values]))

    def _begin(self, name: str, labels: Iterable[tuple[str, ...]]) -> None:
        metric: Any = getattr(self, name)
        for each in labels:
            metric.labels(*each)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"filaviva_{name}", text, labels, registry=self.registry)

    def _loop_counter(self, name: str, text: str, *labels: str) -> LoopCounter:
        return LoopCounter(f"filaviva_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"filaviva_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = LONG
    ) -> LoopHistogram:
        return LoopHistogram(
            f"filaviva_{name}", text, labels, registry=self.registry, buckets=buckets
        )

    def _jobs(self) -> None:
        self.jobs_submitted = self._counter(
            "jobs_submitted_total", "Submissions by what became of them", "type", "source", "result"
        )
        self.job_attempts = self._loop_counter(
            "job_attempts_total", "Ended attempts", "type", "outcome", "error_class"
        )
        self.jobs_finished = self._loop_counter(
            "jobs_finished_total", "Final states", "type", "state"
        )
        self.attempt_duration = self._histogram(
            "job_attempt_duration_seconds", "From claim to outcome", "type", "outcome"
        )
        self.queue_wait = self._histogram("job_queue_wait_seconds", "From due to claimed", "type")
        self.end_to_end = self._histogram(
            "job_end_to_end_seconds", "From submitted to final", "type", "state"
        )
        self.retry_pause = self._histogram("retry_pause_seconds", "Pauses as decided", "type")
        self.retry_lateness = self._histogram(
            "retry_lateness_seconds", "From the end of a pause to the claim", buckets=SHORT
        )
        self.step_attempts = self._counter(
            "step_attempts_total", "Executed steps", "type", "step", "outcome"
        )

    def _money(self) -> None:
        self.job_cost = self._histogram(
            "job_cost_usd", "What a job had cost when it ended", "type", buckets=USD
        )
        self.attempt_cost = self._counter(
            "attempt_cost_usd_total", "Spent by attempts, by what they came to", "type", "outcome"
        )
        self.llm_tokens = self._counter(
            "llm_tokens_total", "Tokens of recorded model calls", "provider", "model", "kind"
        )
        self.llm_cost = self._counter(
            "llm_cost_usd_total", "Cost of recorded model calls", "provider", "model", "type"
        )

    def _journey(self) -> None:
        self.publish_confirm = self._histogram(
            "publish_confirm_seconds", "From publish to confirm", "outcome", buckets=SHORT
        )
        self.duplicates = self._counter(
            "duplicates_suppressed_total", "Messages that had no effect", "consumer", "cause"
        )
        self.dead_letters = self._counter(
            "dead_letters_total", "Dead letters by reason", "type", "reason"
        )
        self.replays = self._counter("replays_total", "Replayed letters", "outcome")
        self.notifications = self._counter(
            "notifications_total", "Alerts to people", "channel", "outcome"
        )
        self.wakeups_reissued = self._counter(
            "wakeups_reissued_total", "Wake-ups sent again", "cause"
        )
        self.leases_expired = self._counter(
            "leases_expired_total", "Leases the sweeper freed", "type"
        )
        self.contract_violations = self._counter(
            "contract_violations_total", "Messages that do not fit", "type", "version", "reason"
        )
        self.contract_upcasts = self._counter(
            "contract_upcasts_total", "Old data made new before it was read", "type", "from", "to"
        )
        self.consumer_rebuilt = self._counter(
            "consumer_rebuilt_total", "Consumers built again", "cause"
        )
        self.rows_removed = self._counter(
            "rows_removed_total", "Removed because nothing has to be kept longer", "what"
        )
        self.turns_given = self._counter("turns_given_total", "Turns given", "priority")

    def _worker(self) -> None:
        self.lease_lost = self._counter(
            "lease_lost_total", "Outcomes that came too late and are void", "type"
        )
        self.handlers_abandoned = self._counter(
            "handlers_abandoned_total",
            "Handlers that did not stop and lost their slot",
            "type",
            "cause",
        )
        self.worker_slots = self._gauge("worker_slots", "Slots by state", "state")
        self.loop_lag = self._gauge(
            "event_loop_lag_seconds", "Longest delay of the event loop in the last half minute"
        )
        self.cancel_seconds = self._histogram(
            "cancel_seconds", "From cancel to stopped", "rung", buckets=CANCEL
        )
        self.steps_after_cancel = self._counter(
            "steps_after_cancel_total", "Steps that began after a cancel; stays 0"
        )

    def _edge(self) -> None:
        self.http_requests = self._histogram(
            "http_request_duration_seconds",
            "From a request to the first byte of its answer",
            "route",
            "method",
            "status",
            buckets=REQUEST,
        )
        self.sse_clients = self._gauge("sse_clients", "Open streams of server-sent events")
