"""Wake-ups for versions that this worker cannot read.

Where a live worker can, the wake-up goes back with a short pause and no attempt is counted. Where
none can, the delivery is rejected: the dlq-handler parks the job or makes a dead letter.
"""

import asyncio

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import wakeups
from filaviva.broker.connection import Backoff
from filaviva.broker.consumer import Consumer, Delivery
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.outbox import OutboxRow
from filaviva.relay import Relay
from filaviva.service import wait
from filaviva_worker.facts import Facts, NotRun
from filaviva_worker.wakeup import WakeUp

log = structlog.get_logger("filaviva")

_READ_BY_ANOTHER = """
SELECT EXISTS (
    SELECT 1 FROM filaviva.workers AS w, jsonb_to_recordset(w.reads)
        AS r(type text, min integer, max integer)
    WHERE w.stopped_at IS NULL AND w.last_seen_at > clock_timestamp() - interval '1 minute'
      AND w.id <> $1 AND r.type = $2 AND $3 BETWEEN r.min AND r.max AND $4 = ANY(w.queues))
"""

_PAUSE = """
UPDATE filaviva.jobs SET not_before = greatest(not_before, clock_timestamp() + interval '1 second')
WHERE id = $1 AND epoch = $2 AND state = 'queued'
"""


class Strangers:
    """Decide about wake-ups without a handler here."""

    def __init__(self, worker: str, engine: AsyncEngine, relay: Relay, facts: Facts) -> None:
        self._worker = worker
        self._engine = engine
        self._relay = relay
        self._facts = facts
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Give back what the database, being away, keeps us from deciding."""
        self._stopping.set()

    def take(self, wake: WakeUp, delivery: Delivery, consumer: Consumer) -> None:
        """Take over a delivery and let go of it once its way is decided."""
        task = asyncio.create_task(self._decide(wake, delivery, consumer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, wake: WakeUp, delivery: Delivery, consumer: Consumer) -> None:
        backoff = Backoff(first=0.2, most=5)
        while True:
            try:
                rows = await transact(self._engine, lambda c: self._hand_back(c, wake))
                break
            except DATABASE_ERRORS as error:
                log.warning("a wake-up waits for the database", why=said(error))
            await wait(self._stopping, backoff.next())
            if self._stopping.is_set():
                consumer.hand_back(delivery)
                return
        if rows is None:
            self._facts.not_run(NotRun("unreadable_version"))
            consumer.reject(delivery)
        else:
            self._facts.not_run(NotRun("handed_back"))
            self._relay.hand_over(rows)
            consumer.settle(delivery)

    async def _hand_back(self, connection: AsyncConnection, wake: WakeUp) -> list[OutboxRow] | None:
        arguments = (self._worker, wake.type, wake.version, wake.queue)
        read = (await connection.exec_driver_sql(_READ_BY_ANOTHER, arguments)).scalar()
        if not read:
            return None
        await connection.exec_driver_sql(_PAUSE, (wake.job_id, wake.epoch))
        return await wakeups.reissue(connection, [(wake.job_id, wake.epoch)])
