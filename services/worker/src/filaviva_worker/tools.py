"""What the contexts of all attempts of a worker share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.notify import Notifier
from filaviva.telemetry.bounded import Bounded
from filaviva.telemetry.metrics import Metrics
from filaviva_worker.calls import Call


@dataclass(frozen=True, slots=True)
class Tools:
    """The database, the notifier and the limits, handed down from `main`.

    Handlers hold a connection for as long as they like, in `transaction()`: those have a pool of
    their own. Otherwise ten slow handlers could keep the outcomes of all others from being
    recorded, and new jobs from being claimed.
    """

    engine: AsyncEngine
    autocommit: AsyncEngine
    transactions: AsyncEngine
    notifier: Notifier
    metrics: Metrics
    lease_is_fresh: Callable[[], bool]
    max_result_bytes: int
    bound_model: Bounded = field(default_factory=lambda: Bounded(100))
    bound_step: Bounded = field(default_factory=lambda: Bounded(300))

    def count_step(self, job_type: str, name: str, state: str) -> None:
        """Count an executed step."""
        self.metrics.step_attempts.labels(job_type, self.bound_step(name), state).inc()

    def count_call(self, call: Call, job_type: str) -> None:
        """Count a model call's tokens and cost."""
        names = (self.bound_model(call.provider), self.bound_model(call.model))
        tokens = self.metrics.llm_tokens
        tokens.labels(*names, "input").inc(call.input_tokens)
        tokens.labels(*names, "output").inc(call.output_tokens)
        tokens.labels(*names, "cache_read").inc(call.cache_read_tokens)
        tokens.labels(*names, "cache_write").inc(call.cache_write_tokens)
        if call.cost_usd is not None:
            self.metrics.llm_cost.labels(*names, job_type).inc(float(call.cost_usd))
