"""Settle: record what attempts came to, a batch at a time, then let go of their deliveries.

Before: attempts have ended; nothing of their outcome is written.
After: every outcome that still counts is committed, and only then is its delivery acknowledged.
May happen twice: each statement knows what an earlier try of the same batch has committed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import failpoints, tracing
from filaviva.broker.connection import Backoff
from filaviva.broker.topology import Topology
from filaviva.classification import classify
from filaviva.database.lines import Lines
from filaviva.database.transaction import (
    DATABASE_ERRORS,
    locked,
    said,
    transact,
    transient,
    unreachable,
)
from filaviva.handler import Handler
from filaviva.outbox import OutboxRow
from filaviva.outcome import Canceled, Dead, Done, Outcome, Retry
from filaviva.relay import Relay
from filaviva.service import first_of
from filaviva.tracing.told import Attempted
from filaviva_worker.claim import Claimed
from filaviva_worker.complete import Completion, complete
from filaviva_worker.facts import Settled
from filaviva_worker.failure import FailedAttempt, fail
from filaviva_worker.live import Ending, Live, Rung
from filaviva_worker.release import closed, record_canceled, release

log = structlog.get_logger("filaviva")

BATCH = 100
T = TypeVar("T")


@dataclass(slots=True)
class Ended:
    """One attempt that has ended, and what it came to."""

    job: Claimed
    live: Live
    handler: Handler
    outcome: Outcome | Ending
    seconds: float
    apart: bool = False  # recorded and told by a task of its own
    stopped_after: float | None = None  # seconds since its cancel


Listener: TypeAlias = Callable[[Sequence[Settled]], None]


class Settling:
    """Take whatever has ended and record it; an idle worker records at once."""

    def __init__(
        self, engine: AsyncEngine, relay: Relay, topology: Topology, listener: Listener
    ) -> None:
        self._engine = engine
        self._lines = Lines(engine)
        self._relay = relay
        self._topology = topology
        self._listener = listener
        self._ended: list[Ended] = []
        self._some = asyncio.Event()
        self._apart: set[asyncio.Task[None]] = set()

    def add(self, ended: Ended) -> None:
        """Take over an ended attempt; it will be recorded, however long that takes."""
        self._ended.append(ended)
        self._some.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Record until stopped, and then what is left."""
        while not (stop.is_set() and not self._ended):
            if not self._ended:
                self._some.clear()
                await first_of(self._some, stop)
            else:
                await self.step()
        await asyncio.gather(*self._apart)

    async def step(self) -> int:
        """Record one batch; return how many attempts it settled."""
        batch, self._ended = self._ended[:BATCH], self._ended[BATCH:]
        failpoints.passing("complete.before")
        counted = await self._completed([each for each in batch if isinstance(each.outcome, Done)])
        batch_size, batch = len(batch), [each for each in batch if not each.apart]
        # A completion whose effect the database refused has become a failure meanwhile.
        counted |= await self._failed(
            [each for each in batch if isinstance(each.outcome, Retry | Dead)]
        )
        counted |= await self._canceled([e for e in batch if isinstance(e.outcome, Canceled)])
        counted |= await self._released([e for e in batch if e.outcome is Ending.SHUTDOWN])
        counted |= await self._closed_before([e for e in batch if e.job.id not in counted])
        failpoints.passing("complete.committed")
        self._tell(batch, counted)
        return batch_size

    def _tell(self, ended: Sequence[Ended], counted: set[UUID]) -> None:
        self._listener([_settled(each, counted=each.job.id in counted) for each in ended])

    async def _completed(self, ended: Sequence[Ended]) -> set[UUID]:
        if not ended:
            return set()
        if len(ended) == 1:
            return await self._alone(ended[0])
        try:
            return await self._until_answered(lambda: self._complete(ended), again=unreachable)
        except Exception:  # noqa: BLE001 - the border to users' statements and types
            return await self._one_by_one(ended)

    async def _alone(
        self, each: Ended, *, again: Callable[[BaseException], bool] = unreachable
    ) -> set[UUID]:
        try:
            return await self._until_answered(lambda: self._complete([each]), again=again)
        except Exception as refused:  # noqa: BLE001 - the border to users' statements and types
            if locked(refused):
                self._set_apart(each)
            else:
                each.outcome = classify(refused.__cause__ or refused, each.handler.policy)
            return set()

    def _set_apart(self, each: Ended) -> None:
        """Somebody holds its row for long: record it beside the others, who need not wait."""
        each.apart = True
        task = asyncio.create_task(self._insist(each))
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)

    async def _insist(self, each: Ended) -> None:
        counted = await self._alone(each, again=_absent_or_locked)
        counted |= await self._failed([each])
        self._tell([each], counted)

    async def _one_by_one(self, ended: Sequence[Ended]) -> set[UUID]:
        """A statement of one of them fails: find it, so that its neighbours complete."""
        counted: set[UUID] = set()
        for each in ended:
            counted |= await self._completed([each])
        return counted

    async def _complete(self, ended: Sequence[Ended]) -> set[UUID]:
        completions = [
            Completion(
                each.job.id,
                each.job.fence,
                each.outcome.result,
                each.outcome.effects,
                each.handler.policy.lifecycle,
            )
            for each in ended
            if isinstance(each.outcome, Done)
        ]
        several = any(each.effects or each.lifecycle for each in completions)
        lines = self._lines if several else self._lines.single
        counted = await transact(lines, lambda line: complete(line, completions))
        if any(each.job.calls_back or each.handler.policy.lifecycle for each in ended):
            self._relay.hurry()
        return counted

    async def _failed(self, ended: Sequence[Ended]) -> set[UUID]:
        failures = [
            FailedAttempt(each.job.id, each.job.fence, each.outcome)
            for each in ended
            if isinstance(each.outcome, Retry | Dead)
        ]
        if not failures:
            return set()

        rows = await self._until_answered(
            lambda: transact(self._engine, lambda c: fail(c, failures, self._topology))
        )
        failpoints.passing("fail.committed")
        self._relay.hand_over(_after(ended, rows))
        return _jobs(rows)

    async def _canceled(self, ended: Sequence[Ended]) -> set[UUID]:
        if not ended:
            return set()
        jobs = [(each.job.id, each.job.fence) for each in ended]
        rungs = {each.job.id: each.live.rung.value for each in ended if each.live.rung}
        seconds = await self._until_answered(
            lambda: transact(self._engine, lambda c: record_canceled(c, jobs, rungs))
        )
        self._relay.hurry()
        for each in ended:
            each.stopped_after = seconds.get(each.job.id)
        return set(seconds)

    async def _released(self, ended: Sequence[Ended]) -> set[UUID]:
        if not ended:
            return set()
        jobs = [(each.job.id, each.job.fence) for each in ended]
        rows, canceled = await self._until_answered(
            lambda: transact(self._engine, lambda c: self._give_back(c, jobs))
        )
        self._relay.hand_over(rows)
        for each in ended:
            if each.job.id in canceled:
                each.outcome = Canceled()
        return _jobs(rows) | canceled

    async def _give_back(
        self, connection: AsyncConnection, jobs: Sequence[tuple[UUID, int]]
    ) -> tuple[list[OutboxRow], set[UUID]]:
        """Release what was running, and end what was to be canceled: its work has stopped."""
        rows = await release(connection, jobs, self._topology)
        return rows, set(await record_canceled(connection, jobs))

    async def _closed_before(self, void: Sequence[Ended]) -> set[UUID]:
        """Perhaps only the answer to our commit was lost: find the attempts that we have closed."""
        jobs = [(each.job.id, each.job.fence) for each in void if _closes(each)]
        if not jobs:
            return set()
        return await self._until_answered(lambda: transact(self._engine, lambda c: closed(c, jobs)))

    async def _until_answered(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        again: Callable[[BaseException], bool] = transient,
    ) -> T:
        """Try again while the database is away, or for whatever else `again` says."""
        backoff = Backoff(first=0.2, most=5)
        while True:
            try:
                return await work()
            except DATABASE_ERRORS as error:
                if not again(error):
                    raise
                log.warning("outcomes wait for the database", why=said(error))
                await asyncio.sleep(backoff.next())


def _settled(each: Ended, *, counted: bool) -> Settled:
    rung = each.live.rung and each.live.rung.value
    spent = each.live.spent
    return Settled(each.job, each.outcome, each.seconds, counted, rung, each.stopped_after, spent)


def _after(ended: Sequence[Ended], rows: Sequence[OutboxRow]) -> Sequence[OutboxRow]:
    """Have what is sent of an attempt belong to its trace."""
    if tracing.spans is None:
        return rows
    hops = {
        each.job.id: tracing.spans.after(
            Attempted(job_id=each.job.id, number=each.job.attempt, origin=each.job.traceparent)
        )
        for each in ended
    }
    return [replace(row, hop=hops.get(row.job_id) if row.job_id else None) for row in rows]


def _absent_or_locked(error: BaseException) -> bool:
    return unreachable(error) or locked(error)


def _closes(each: Ended) -> bool:
    if each.live.rung is Rung.FENCED:
        return False  # closed when it was given up; whoever decided then has told its end
    return isinstance(each.outcome, Retry | Dead | Canceled) or each.outcome is Ending.SHUTDOWN


def _jobs(rows: Sequence[OutboxRow]) -> set[UUID]:
    return {row.job_id for row in rows if row.job_id is not None}
