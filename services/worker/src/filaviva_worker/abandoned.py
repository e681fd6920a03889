"""Work that cannot be stopped and counts no more: its slot is given back, and it is counted.

Before: an awaiting handler ignores that it was told to stop, and its lease is over.
After: it goes on beside the others until it ends, or the process does: that ends by itself once as
many go on as it has slots, so that whoever runs it starts a fresh one.
May happen twice: no; an attempt is abandoned once.
"""

import asyncio
from collections.abc import Callable

import structlog

from filaviva.telemetry.metrics import Metrics
from filaviva_worker.live import Ending, Live

log = structlog.get_logger("filaviva")


class Abandoned:
    """What goes on in this process without a slot."""

    def __init__(self, metrics: Metrics, *, most: int, worn_out: Callable[[], None]) -> None:
        self._metrics = metrics
        self._most = most
        self._worn_out = worn_out
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def take(self, live: Live, task: asyncio.Task[None], job_type: str) -> None:
        """Keep a task that has lost its slot, until it ends."""
        cause = live.ending or Ending.LOST
        self._metrics.handlers_abandoned.labels(job_type, cause.value).inc()
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        log.error(
            "a handler does not stop; its slot is given back, and nothing that it does counts",
            job_id=str(live.job_id),
            type=job_type,
            cause=cause.value,
            abandoned=len(self._tasks),
        )
        if len(self._tasks) >= self._most:
            self._worn_out()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        log.info("an abandoned handler has ended", left=len(self._tasks))
