"""What the contexts of all attempts of a worker share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.notify import Notifier
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
    database_away: tuple[type[Exception], ...] = field(default=(DBAPIError, OSError, TimeoutError))

    def count_call(self, call: Call, job_type: str) -> None:
        """Count a model call's tokens and cost."""
        names = (call.provider, call.model)
        tokens = self.metrics.llm_tokens
        tokens.labels(*names, "input").inc(call.input_tokens)
        tokens.labels(*names, "output").inc(call.output_tokens)
        if call.cost_usd is not None:
            self.metrics.llm_cost.labels(*names, job_type).inc(float(call.cost_usd))
            self.metrics.job_cost.labels(job_type).inc(float(call.cost_usd))
