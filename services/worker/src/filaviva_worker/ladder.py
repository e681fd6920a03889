"""Ladder: stop the work of a canceled job, rung after rung, and tell how far that is.

Before: the job is `cancel_requested` and at work here; no step of it starts any more.
After: the work has stopped, or is fenced: its lease is given up, and whatever it writes is void.
May happen twice: no; a job is canceled once for each claim.

An awaiting handler may end what it does at the moment, then what it awaits is canceled, again and
again. A handler in a process gets SIGTERM, then SIGKILL. A thread cannot be stopped: the job says
`cancel_requested` until the thread ends.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.handler import Handler
from filaviva.telemetry.metrics import Metrics
from filaviva_worker.live import Ending, Live, Rung

log = structlog.get_logger("filaviva")

_MINE = """
WITH mine AS MATERIALIZED (
    SELECT id, attempt,
        extract(epoch FROM clock_timestamp() - cancel_requested_at)::float8 AS seconds
    FROM filaviva.jobs WHERE id = $1 AND fence = $2 AND state = 'cancel_requested'
    FOR NO KEY UPDATE),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'cancel',
        jsonb_build_object('rung', $3::text, 'seconds', round(seconds::numeric, 3)) FROM mine)
"""

_REACHED = _MINE + "SELECT seconds FROM mine"

# The lease ends now; `decide` then takes the fence away and says `canceled`.
_GIVE_UP = (
    _MINE
    + """,
given_up AS (
    UPDATE filaviva.jobs SET lease_expires_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM mine WHERE jobs.id = mine.id),
closed AS (
    UPDATE filaviva.attempts SET outcome = 'canceled', error_class = 'canceled',
        error_code = 'CancelIgnored', error_message = $4, finished_at = clock_timestamp()
    FROM mine WHERE attempts.job_id = mine.id AND attempts.number = mine.attempt)
SELECT seconds FROM mine
"""
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each rung may take, in seconds; `limit` is for an awaiting handler as a whole."""

    cooperative: float = 0.5
    again: float = 1.0
    limit: float = 30.0


class Ladder:
    """Climb for every canceled job of a worker."""

    def __init__(self, autocommit: AsyncEngine, metrics: Metrics, patience: Patience) -> None:
        self._engine = autocommit
        self._metrics = metrics
        self._patience = patience
        self._climbing: set[asyncio.Task[Any]] = set()

    def begin(self, live: Live, handler: Handler) -> None:
        """Start to climb for a job that was just told to stop."""
        live.rung = Rung.COOPERATIVE
        if live.task is not None and (handler.is_async or handler.policy.timeout is not None):
            self._keep(self._climb(live, live.task, is_async=handler.is_async))

    def reached(self, live: Live, rung: Rung) -> None:
        """Note that a rung is reached, if it is a cancel that stops this job."""
        if live.ending is Ending.CANCELED:
            live.rung = rung
            self._keep(self._tell(live, rung))

    async def _climb(self, live: Live, attempt: asyncio.Task[None], *, is_async: bool) -> None:
        if await _over(attempt, self._patience.cooperative):
            return
        if not is_async:  # whoever waits for the process ends it, and tells the rungs
            live.interrupt()
            return
        self.reached(live, Rung.TASK)
        limit = time.monotonic() + self._patience.limit
        while True:
            live.interrupt()
            if await _over(attempt, self._patience.again):
                return
            if time.monotonic() > limit and live.rung is not Rung.FENCED:
                await self._give_up(live)

    async def _give_up(self, live: Live) -> None:
        """Let the lease go: nothing that the work still writes will count."""
        live.renew_until = 0
        words = f"the handler ignored the cancel for {self._patience.limit:g} s and was fenced"
        try:
            arguments = (live.job_id, live.fence, Rung.FENCED.value, words)
            rows = await transact(self._engine, lambda c: fetch(c, _GIVE_UP, arguments))
        except DATABASE_ERRORS as away:
            log.info("a lease is not given up yet", job_id=str(live.job_id), why=said(away))
            return
        live.rung = Rung.FENCED
        live.abandon()
        for row in rows:
            self._metrics.cancel_seconds.labels(Rung.FENCED.value).observe(row[0])

    async def _tell(self, live: Live, rung: Rung) -> None:
        arguments = (live.job_id, live.fence, rung.value)
        try:
            await transact(self._engine, lambda c: fetch(c, _REACHED, arguments))
        except DATABASE_ERRORS as away:
            log.info("a rung is not told", job_id=str(live.job_id), why=said(away))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._climbing.add(task)
        task.add_done_callback(self._climbing.discard)


async def _over(attempt: asyncio.Task[None], seconds: float) -> bool:
    await asyncio.wait({attempt}, timeout=seconds)
    return attempt.done()
