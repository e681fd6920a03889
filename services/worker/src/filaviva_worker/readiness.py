"""Whether this worker is usable, and how busy it is."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.relay import Relay
from filaviva.service import wait
from filaviva.telemetry.metrics import Metrics
from filaviva_worker.worker import Worker


class Readiness:
    """List what keeps the worker from working: nothing means ready."""

    def __init__(self, engine: AsyncEngine, relay: Relay, worker: Worker) -> None:
        self._engine = engine
        self._relay = relay
        self._worker = worker

    async def __call__(self) -> list[str]:
        """Ask the database and look at the consumers."""
        problems = []
        try:
            async with asyncio.timeout(2), self._engine.connect() as connection:
                await connection.exec_driver_sql("SELECT 1")
        except DATABASE_ERRORS as away:
            problems.append(f"database: {type(away).__name__}")
        problems += [each for consumer in self._worker.consumers for each in consumer.problems()]
        if not self._worker.heartbeat.fresh:
            problems.append("heartbeat: no lease was renewed for a whole lease")
        return problems


class Slots:
    """Show how many slots are busy and free, and how many handlers go on without one."""

    def __init__(self, worker: Worker, metrics: Metrics) -> None:
        self._worker = worker
        self._metrics = metrics

    async def run(self, stop: asyncio.Event) -> None:
        """Look once a second until stopped."""
        while not stop.is_set():
            busy, free = self._worker.slots
            self._metrics.worker_slots.labels("busy").set(busy)
            self._metrics.worker_slots.labels("free").set(free)
            self._metrics.worker_slots.labels("abandoned").set(len(self._worker.abandoned))
            await wait(stop, 1)
