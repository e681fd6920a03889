"""Jobs that nothing will wake: their wake-up was lost with the broker, so it is issued again.

Before: the job has been due for a while, and nothing on its queue can be its wake-up.
After: the same epoch has another wake-up, in an outbox row.
May happen twice: a second copy of a wake-up finds the job claimed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import outbox
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.errors import Unreachable
from filaviva.failpoints import passing
from filaviva.service import wait
from filaviva.turns import OPEN, Gate
from filaviva.wakeups import renew
from filaviva.waking import wake
from filaviva_retry_scheduler import moved, parked
from filaviva_retry_scheduler.announcer import Announcer
from filaviva_retry_scheduler.dead import job_dead
from filaviva_retry_scheduler.decide import Decided
from filaviva_retry_scheduler.depths import Depths
from filaviva_retry_scheduler.facts import DeadLetterRepublished, WakeUpReissued

log = structlog.get_logger("filaviva")

# While a lost backlog comes back in portions, the next one is due as soon as the last is drained.
_BRISK_PAUSE = 1.0
_BRISK_FOR = 60.0
# Where jobs wait for their turn: what was woken is taken within seconds.
_SUSPECTED = 60.0
# With nothing published for a day, jobs are hardly astray: every so many rare looks will do.
_LOOKS = 10

# A skip scan: one index probe for each queue that has queued jobs, however many those are.
_QUEUES = """
WITH RECURSIVE queues(queue) AS (
    (SELECT queue FROM filaviva.jobs WHERE state = 'queued' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.queue FROM filaviva.jobs AS jobs
            WHERE state = 'queued' AND jobs.queue > queues.queue ORDER BY jobs.queue LIMIT 1)
    FROM queues WHERE queues.queue IS NOT NULL)
SELECT queue FROM queues WHERE queue IS NOT NULL
"""

# `due` is greatest(queued_at, not_before), as in the index jobs_due. A wake-up is believed lost
# when its queue has nothing ready, or when workers have claimed jobs of this queue and priority
# that were due five minutes later. How long the last re-issue is left alone doubles by itself:
# as long again as the job had been due by then, from one minute to one hour.
_LOST = """
WITH marks AS MATERIALIZED (
    SELECT split_part(mark.key, '/', 2)::smallint AS priority,
        max(mark.value::timestamptz) - interval '5 minutes' AS passed
    FROM filaviva.workers AS workers, jsonb_each_text(workers.watermarks) AS mark
    WHERE workers.last_seen_at > now() - interval '10 minutes'
        AND split_part(mark.key, '/', 1) = $1
    GROUP BY 1)
SELECT jobs.id, jobs.epoch
FROM filaviva.jobs AS jobs LEFT JOIN marks ON marks.priority = jobs.priority
WHERE jobs.state = 'queued' AND jobs.queue = $1 AND jobs.parked_reason IS NULL
    AND greatest(jobs.queued_at, jobs.not_before) < least(
        now() - interval '1 minute',
        CASE WHEN $2::boolean THEN 'infinity'
             ELSE coalesce((SELECT max(passed) FROM marks), '-infinity') END)
    AND ($2::boolean OR greatest(jobs.queued_at, jobs.not_before) < marks.passed)
    AND (jobs.reissued_at IS NULL OR jobs.reissued_at < now() - least(interval '1 hour', greatest(
        interval '1 minute',
        jobs.reissued_at - greatest(jobs.queued_at, jobs.not_before))))
    AND NOT EXISTS (
        SELECT FROM filaviva.outbox AS outbox
        WHERE outbox.job_id = jobs.id AND outbox.epoch = jobs.epoch)
    AND NOT EXISTS (
        SELECT FROM filaviva.turns AS turns
        WHERE turns.job_id = jobs.id AND turns.epoch = jobs.epoch)
    AND NOT EXISTS (
        SELECT FROM filaviva.upcoming AS upcoming
        WHERE upcoming.job_id = jobs.id AND upcoming.epoch = jobs.epoch)
ORDER BY greatest(jobs.queued_at, jobs.not_before)
LIMIT $3 FOR NO KEY UPDATE OF jobs SKIP LOCKED
"""

# Of what failed longer ago than letters are kept nobody knows: a closed one may have been removed,
# while a job that is kept for longer is still there.
_UNTOLD = """
WITH untold AS MATERIALIZED (
    SELECT jobs.id FROM filaviva.jobs AS jobs
    WHERE jobs.state = 'failed' AND jobs.finished_at < now() - interval '1 minute'
        AND jobs.finished_at > now() - 86400 * $2::float8 * interval '1 second'
        AND jobs.parked_reason IS DISTINCT FROM 'items'
        AND (jobs.reissued_at IS NULL OR jobs.reissued_at < now() - least(
            interval '1 hour', greatest(interval '1 minute', jobs.reissued_at - jobs.finished_at)))
        AND NOT EXISTS (
            SELECT FROM filaviva.dead_letters AS letters
            WHERE letters.job_id = jobs.id AND letters.epoch = jobs.epoch)
        AND NOT EXISTS (
            SELECT FROM filaviva.outbox AS outbox
            WHERE outbox.job_id = jobs.id AND outbox.epoch = jobs.epoch)
    ORDER BY jobs.id LIMIT $1 FOR NO KEY UPDATE OF jobs SKIP LOCKED),
told AS (
    UPDATE filaviva.jobs AS jobs
    SET issue = jobs.issue + 1, reissued_at = clock_timestamp()
    FROM untold WHERE jobs.id = untold.id
    RETURNING jobs.id AS job_id, jobs.epoch, jobs.type, jobs.queue, jobs.correlation_id,
        jobs.traceparent, jobs.issue - 1 AS copy)
SELECT told.*, coalesce((
    SELECT events.data->>'reason' FROM filaviva.job_events AS events
    WHERE events.job_id = told.job_id AND events.kind = 'state'
    ORDER BY events.id DESC LIMIT 1), 'terminal') AS reason
FROM told ORDER BY job_id
"""

_IN_LINE = "SELECT EXISTS (SELECT FROM filaviva.turns WHERE queue = $1)"

Candidate: TypeAlias = tuple[UUID, int]
Work: TypeAlias = Callable[[AsyncConnection], Awaitable[Decided]]


class Reconciler:
    """Compare what is due with what can still come, and issue again what was lost."""

    def __init__(  # noqa: PLR0913 - what it works with, and its pace
        self,
        engine: AsyncEngine,
        depths: Depths,
        announcer: Announcer,
        *,
        batch: int = 1000,
        pause: float = 10.0,
        rarely: float = 60.0,
        letters_days: float = 90.0,
        gate: Gate = OPEN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._depths = depths
        self._announcer = announcer
        self._batch = batch
        self._pause = pause
        self._rarely = rarely
        self._letters_days = letters_days
        self._rare_due = clock()
        self._gate = gate
        self._clock = clock
        self._brisk_until = clock()
        self._looks = 0
        self._suspects: dict[str, dict[Candidate, float]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until stopped."""
        while not stop.is_set():
            if await self.step() >= self._batch:
                self._brisk_until = self._clock() + _BRISK_FOR
            brisk = self._clock() < self._brisk_until
            await wait(stop, min(_BRISK_PAUSE, self._pause) if brisk else self._pause)

    async def step(self) -> int:
        """Make one pass over every queue; return how many messages were issued again."""
        try:
            return await self._pass()
        except Unreachable as silent:
            # What is on its queues cannot be known, and what we issue could not leave.
            log.info("nothing is reconciled while the broker is unreachable", why=str(silent))
        except DATABASE_ERRORS as failed:
            log.warning("a pass of the reconciler failed", why=said(failed))
        return 0

    async def _pass(self) -> int:
        queues, missing = await transact(self._engine, _queues)
        ready = await self._depths.ready({*queues, *missing})
        issued = 0
        for queue in (queue for queue in queues if queue in ready):
            issued += await self._reissue(queue, empty=ready[queue] == 0)
        issued += await self._release(sorted(ready.keys() & set(missing)))
        return issued + await self._rare()

    async def _reissue(self, queue: str, *, empty: bool) -> int:
        async def work(connection: AsyncConnection) -> Decided:
            found = await connection.exec_driver_sql(_LOST, (queue, empty, self._batch))
            lost = [(job.id, job.epoch) for job in found]
            if not empty and (await connection.exec_driver_sql(_IN_LINE, (queue,))).scalar():
                lost = self._seen_before(queue, lost)
            again = await renew(connection, lost, lost=True)
            facts = [WakeUpReissued(job["job_id"], "lost") for job in again]
            rows = await wake(connection, again, self._gate)
            return Decided(rows, facts, frozenset(job["job_id"] for job in again))

        issued = await self._commit(work)
        if issued:
            log.warning("lost wake-ups were issued again", queue=queue, jobs=issued)
        return issued

    def _seen_before(self, queue: str, lost: Sequence[Candidate]) -> list[Candidate]:
        """Those that seemed lost long ago already.

        Where jobs wait for their turn they are woken in another order than they came: one that is
        overdue may have been woken a moment ago.
        """
        now, known = self._clock(), self._suspects.get(queue, {})
        self._suspects[queue] = {job: known.get(job, now) for job in lost}
        return [job for job, since in self._suspects[queue].items() if now - since >= _SUSPECTED]

    async def _release(self, queues: list[str]) -> int:
        if not queues:
            return 0
        return await self._commit(
            lambda on: parked.release_on(on, self._gate, queues, limit=self._batch)
        )

    async def _rare(self) -> int:
        """The looks at all failed and all queued jobs are dear, so they are rarer than the pass."""
        if self._clock() < self._rare_due:
            return 0
        self._rare_due = self._clock() + self._rarely
        return await self._move() + await self._commit(self._tell)

    async def _move(self) -> int:
        self._looks += 1
        due = self._looks % _LOOKS == 1
        if not due and not await transact(self._engine, moved.published_lately):
            return 0
        jobs = total = await self._commit(self._follow)
        while jobs == self._batch:
            jobs = await self._commit(self._follow)
            total += jobs
        if total:
            log.warning("jobs were moved to the queue of their handler", jobs=total)
        return total

    async def _follow(self, connection: AsyncConnection) -> Decided:
        return await moved.follow(connection, self._gate, limit=self._batch)

    async def _tell(self, connection: AsyncConnection) -> Decided:
        found = await connection.exec_driver_sql(_UNTOLD, (self._batch, self._letters_days))
        untold = found.mappings().all()
        facts = [DeadLetterRepublished(job["job_id"], job["type"]) for job in untold]
        messages = [
            job_dead(**{key: value for key, value in job.items() if key != "type"})
            for job in untold
        ]
        rows = await outbox.add(connection, messages)
        return Decided(rows, facts, frozenset(job["job_id"] for job in untold))

    async def _commit(self, work: Work) -> int:
        async def before_commit(connection: AsyncConnection) -> Decided:
            decided = await work(connection)
            if decided.jobs:
                passing("reconcile.before_commit")
            return decided

        decided = await transact(self._engine, before_commit)
        self._announcer.announce(decided)
        return len(decided.jobs)


async def _queues(connection: AsyncConnection) -> tuple[list[str], list[str]]:
    queued = await connection.exec_driver_sql(_QUEUES)
    return list(queued.scalars()), await parked.missing_queues(connection)
