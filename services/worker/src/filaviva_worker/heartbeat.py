"""Heartbeat: extend the leases of what is alive here, from a thread and connection of its own.

A handler that blocks the event loop does not cost its neighbours their leases, and a database
that is away is noticed here first.
"""

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from filaviva.database.engine import driver_url
from filaviva.database.transaction import DATABASE_ERRORS, said
from filaviva.worst import Worst
from filaviva_worker.live import Ending, LiveJobs

log = structlog.get_logger("filaviva")

# A completion that holds some of the rows must not cost the others their leases: locked rows are
# skipped, and skipped is not lost. An expired lease that nobody has swept yet may be renewed.
_RENEW = """
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS x(id, fence)),
locked AS MATERIALIZED (
    SELECT id, fence, state FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED),
held AS MATERIALIZED (
    SELECT locked.id, locked.state FROM locked JOIN wanted USING (id)
    WHERE locked.fence = wanted.fence AND locked.state IN ('running', 'cancel_requested')),
renewed AS (
    UPDATE filaviva.jobs SET lease_expires_at = clock_timestamp() + make_interval(secs => $3)
    FROM held WHERE jobs.id = held.id)
SELECT locked.id, wanted.fence, held.state
FROM locked JOIN wanted USING (id) LEFT JOIN held USING (id)
WHERE held.id IS NULL OR held.state = 'cancel_requested'
"""

_SEEN = """
INSERT INTO filaviva.workers AS w (id, service, app, host, pid, queues, reads, slots, busy,
    watermarks, lately, release, draining_at)
VALUES ($1, 'worker', $2, $3, $4, $5, $6::jsonb, $7, $8, $9::jsonb, $10::jsonb, $11,
    CASE WHEN $12 THEN clock_timestamp() END)
ON CONFLICT (id) DO UPDATE SET
    busy = excluded.busy, watermarks = excluded.watermarks, lately = excluded.lately,
    draining_at = coalesce(w.draining_at, excluded.draining_at), last_seen_at = clock_timestamp()
"""

_GONE = "UPDATE filaviva.workers SET stopped_at = clock_timestamp(), busy = 0 WHERE id = $1"


@dataclass(frozen=True, slots=True)
class Presence:
    """How this worker appears to the others."""

    id: str
    app: str
    queues: tuple[str, ...]
    reads: Sequence[Mapping[str, Any]]
    slots: int
    release: str = ""


class Heartbeat:
    """Renew leases every third of their length; tell the loop what was canceled or lost."""

    def __init__(  # noqa: PLR0913 - what it tells the others comes from elsewhere
        self,
        url: str,
        live: LiveJobs,
        presence: Presence,
        *,
        lease_seconds: float,
        watermarks: Callable[[], Mapping[str, float]],
        lately: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._url = url
        self._live = live
        self._presence = presence
        self._lease = lease_seconds
        self._watermarks = watermarks
        self._lately = lately
        self._draining = False
        self._last_success = time.monotonic()
        self.gaps = Worst()  # between two successes, while the database was there
        self._missed = True  # nothing to compare with yet
        self._ended = threading.Event()
        self._soon = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def fresh(self) -> bool:
        """Whether the last success is younger than a lease: only then may new steps start."""
        return time.monotonic() - self._last_success < self._lease

    def hurry(self) -> None:
        """Beat now: somebody may have been canceled without our hearing of it."""
        self._soon.set()

    def drain(self) -> None:
        """Let the others see that we only end what runs here."""
        self._draining = True
        self._soon.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Beat in a thread until stopped; what kills the heart is raised here: the worker ends."""
        self._loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._beat, args=(over,), name="heartbeat", daemon=True).start()
        stopping = asyncio.ensure_future(stop.wait())
        ends: tuple[asyncio.Future[Any], ...] = (stopping, over)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        self._ended.set()
        self._soon.set()
        await asyncio.wait({over}, timeout=5)
        if over.done():
            over.result()

    def _beat(self, over: "asyncio.Future[None]") -> None:
        try:
            asyncio.run(self._beat_until_ended())
        except Exception as fatal:  # noqa: BLE001 - around a loop: nobody else looks at a thread's end
            self._post(over.set_exception, fatal)
        else:
            self._post(over.set_result, None)

    def _post(self, tell: Callable[..., object], *arguments: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell, *arguments)

    async def _beat_until_ended(self) -> None:
        connection: asyncpg.Connection | None = None
        while not self._ended.is_set():
            try:
                connection = connection or await self._connect()
                await self._once(connection)
            except DATABASE_ERRORS as away:
                log.warning("heartbeat failed", why=said(away))
                # Leases outlive such a gap: nobody frees them before the database is back for good.
                self._missed = True
                if connection is not None:
                    connection.terminate()
                connection = None
            await asyncio.to_thread(self._soon.wait, self._pause(connection))
            self._soon.clear()
        if connection is not None:
            await self._leave(connection)

    def _pause(self, connection: asyncpg.Connection | None) -> float:
        return self._lease / 3 if connection is not None else min(1.0, self._lease / 3)

    async def _connect(self) -> asyncpg.Connection:
        address, arguments = driver_url(self._url)
        settings = {
            "application_name": "filaviva-heartbeat",
            "statement_timeout": "5000",
            "enable_seqscan": "off",  # as every hot station: see `connect`
        }
        arguments.setdefault("server_settings", {}).update(settings)
        patience = {"timeout": 5, "command_timeout": 5, **arguments}
        return await asyncpg.connect(address.replace("+asyncpg", ""), **patience)

    async def _once(self, connection: asyncpg.Connection) -> None:
        # A lease counts from when it was written, not from when the answer came.
        asked = time.monotonic()
        jobs = self._live.to_renew()
        if jobs:
            ids, fences = [job for job, _ in jobs], [fence for _, fence in jobs]
            rows = await connection.fetch(_RENEW, ids, fences, self._lease)
            for job_id, fence, state in rows:
                self._tell(job_id, fence, Ending.LOST if state is None else Ending.CANCELED)
        if not self._missed:
            self.gaps.saw(asked - self._last_success)
        self._missed = False
        self._last_success = asked
        await self._be_seen(connection)

    def _tell(self, job_id: UUID, fence: int, why: Ending) -> None:
        self._post(self._live.end, UUID(bytes=job_id.bytes), fence, why)

    async def _be_seen(self, connection: asyncpg.Connection) -> None:
        me = self._presence
        marks = {
            key: datetime.fromtimestamp(due, UTC).isoformat()
            for key, due in self._watermarks().items()
        }
        await connection.execute(
            _SEEN,
            me.id,
            me.app,
            socket.gethostname(),
            os.getpid(),
            list(me.queues),
            json.dumps(list(me.reads)),
            me.slots,
            len(self._live),
            json.dumps(marks),
            json.dumps(self._lately()),
            me.release,
            self._draining,
        )

    async def _leave(self, connection: asyncpg.Connection) -> None:
        try:
            await connection.execute(_GONE, self._presence.id)
            await connection.close()
        except DATABASE_ERRORS as away:
            log.info("left without a word; the others will notice", why=said(away))
