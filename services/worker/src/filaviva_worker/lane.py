"""Lane: the way of one queue's wake-ups through this worker, and its slots.

receive → claim a batch for the free slots → run each attempt → settle a batch → acknowledge.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import failpoints, tracing
from filaviva.broker.consumer import Consumer, Delivery
from filaviva.broker.topology import Topology
from filaviva.handler import Handler
from filaviva.operations.following import Following
from filaviva.relay import Relay
from filaviva.service import end_within, wait
from filaviva.telemetry.logs import speak_of
from filaviva_worker.abandoned import Abandoned
from filaviva_worker.attempt import Attempts
from filaviva_worker.claim import SUSPICIOUS, Claimed, Verdict
from filaviva_worker.claimer import Claimer
from filaviva_worker.event_intake import EventIntake
from filaviva_worker.facts import Facts, NotRun, Settled, words
from filaviva_worker.gathering import Gathering
from filaviva_worker.limited import Limited
from filaviva_worker.live import Ending, Live, LiveJobs
from filaviva_worker.reissue import issue_again
from filaviva_worker.room import Room
from filaviva_worker.settle import Ended, Settling
from filaviva_worker.strangers import Strangers
from filaviva_worker.wakeup import WakeUp, read

log = structlog.get_logger("filaviva")

BATCH = 100
# A delivery that finds no slot for so long goes back to the queue's end, for an idle worker.
PATIENCE = 2.0
# For how long a suspect steps back while another one runs; in seconds, then jittered.
SUSPECT_PAUSE = 1.0
# What a claim in flight, and then a stopped handler, may still take when we are asked to end.
LAST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one lane does at a time, and for how long its leases last; in seconds."""

    slots: int
    lease_seconds: float
    detach_after: float
    grace: float
    stubborn: float = 30.0  # what goes on for so long without a lease loses its slot


@dataclass(slots=True)
class Waiting:
    """A wake-up that is not claimed yet."""

    wake: WakeUp
    delivery: Delivery
    since: float


class Lane:
    """One queue's wake-ups, from the delivery to the acknowledgement."""

    def __init__(  # noqa: PLR0913 - a composition: each is one duty of its own
        self,
        queue: str,
        *,
        worker: str,
        engine: AsyncEngine,
        relay: Relay,
        attempts: Attempts,
        live: LiveJobs,
        strangers: Strangers,
        events: EventIntake,
        limited: Limited,
        facts: Facts,
        following: Following,
        abandoned: Abandoned,
        limits: Limits,
    ) -> None:
        self.queue = queue
        self._source = Topology().work(queue)
        self._engine = engine
        self._claimer = Claimer(engine, limited, worker=worker, lease_seconds=limits.lease_seconds)
        self._relay = relay
        self._attempts = attempts
        self._live = live
        self._strangers = strangers
        self._events = events
        self._facts = facts
        self._following = following
        self._abandoned = abandoned
        self._limits = limits
        self._free = limits.slots
        self._waiting: deque[Waiting] = deque()
        self._later: list[Waiting] = []
        self._epochs: dict[UUID, int] = {}  # of every job that waits or runs here
        self._unclaimed: dict[UUID, Waiting] = {}  # of those the ones that do not run yet
        self._room = Room(limits.slots, detach_after=limits.detach_after)
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._prefetch = limits.slots
        self._suspect: UUID | None = None
        self._gathering = Gathering()
        self._most = BATCH  # at once; fewer after the database refused a batch
        self._closed = False
        self._some = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.watermarks: dict[str, float] = {}

    def attach(self, consumer: Consumer, settling: Settling) -> None:
        """Say where deliveries come from and where outcomes go (they need this lane first)."""
        self._consumer = consumer
        self._settling = settling

    @property
    def slots(self) -> tuple[int, int]:
        """Give (busy, free)."""
        return self._limits.slots - self._free, self._free

    def receive(self, delivery: Delivery) -> None:
        """Take a delivery in; it is acknowledged once its outcome is committed."""
        failpoints.passing("wakeup.received")
        wake = read(delivery)
        if self._closed:
            self._consumer.hand_back(delivery)
        elif wake is None:
            self._events.take(delivery, self._consumer)
        elif self._attempts.handler(wake.type, wake.version) is None:
            self._strangers.take(wake, delivery, self._consumer)
        else:
            self._take(Waiting(wake, delivery, time.monotonic()))

    def _take(self, each: Waiting) -> None:
        job_id = each.wake.job_id
        known = self._epochs.get(job_id)
        if known is None and job_id not in self._live:
            self._epochs[job_id] = each.wake.epoch
            self._unclaimed[job_id] = each
            self._waiting.append(each)
            self._some.set()
            self._gathering.arrived(len(self._waiting))
        elif known is not None and each.wake.epoch <= known:
            # One local task per job: whoever runs it makes this copy superfluous.
            self._facts.not_run(NotRun("duplicate"))
            self._consumer.settle(self._superfluous(each))
        else:
            # Its decision was faster than the end of what we run: one local task per job.
            self._later.append(each)

    def _superfluous(self, copy: Waiting) -> Delivery:
        """Give the delivery to let go of: of a job that waits here, the one whose channel is gone.

        The broker has that one back already; were the copy acknowledged instead, nobody would wake
        another worker for this job when we die before we claim it.
        """
        first = self._unclaimed.get(copy.wake.job_id)
        if first is None or first.delivery.session is copy.delivery.session:
            return copy.delivery
        if first.wake.epoch != copy.wake.epoch:
            return copy.delivery
        first.delivery, gone = copy.delivery, first.delivery
        return gone

    def _forget(self, job_id: UUID) -> None:
        """Nothing of this job waits or runs here any more: its next epoch may."""
        self._epochs.pop(job_id, None)
        self._unclaimed.pop(job_id, None)
        if self._later:
            later, self._later = self._later, []
            for each in later:
                self._take(each)

    async def run(self, stop: asyncio.Event) -> None:
        """Claim and run until stopped; then end what runs, within the grace period."""
        async with asyncio.TaskGroup() as group:
            turning = (
                group.create_task(self._claim_until(stop)),
                group.create_task(self._watch_until(stop)),
            )
            await stop.wait()
            if await end_within(LAST_SECONDS, turning):  # the database or the broker is silent
                log.warning("stopped in the middle of a claim", queue=self.queue)
            await self._drain()

    async def _claim_until(self, stop: asyncio.Event) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        while not stop.is_set():
            if self._waiting and self._free:
                room = min(self._most, self._free)
                await self._gathering.wait(len(self._waiting), room, stop)
                if self._waiting and not stop.is_set():
                    await self._claim_batch(stop)
                continue
            self._some.clear()
            some = asyncio.ensure_future(self._some.wait())
            await asyncio.wait({some, stopping}, return_when=asyncio.FIRST_COMPLETED)
            some.cancel()
        stopping.cancel()

    async def _claim_batch(self, stop: asyncio.Event) -> None:
        count = min(self._most, self._free, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        failpoints.passing("claim.before")
        suspect_too = self._suspect is None
        wanted = [each.wake for each in batch]
        claims = await self._claimer.claim(wanted, stop, suspect_too=suspect_too)
        failpoints.passing("claim.committed")
        self._gathering.claimed(count)
        if claims is None:
            self._put_back(batch)
            return
        self._most = min(BATCH, 2 * self._most)
        later: dict[Verdict, list[Waiting]] = {Verdict.EARLY: [], Verdict.SUSPECT: []}
        for each in batch:
            job = claims.claimed.get(each.wake.job_id)
            verdict = claims.others.get(each.wake.job_id, Verdict.STALE)
            if job is not None:
                self._start(job, each.delivery)
            elif verdict in later:
                later[verdict].append(each)
                continue
            else:
                self._facts.not_run(NotRun(verdict.value))
                self._consumer.settle(each.delivery)
                self._forget(each.wake.job_id)
        await self._reissue(later[Verdict.EARLY], stop)
        await self._reissue(later[Verdict.SUSPECT], stop, pause=SUSPECT_PAUSE)

    def _put_back(self, batch: Sequence[Waiting]) -> None:
        """Stopped, or refused: then one by one, and who is refused alone goes behind the others."""
        if len(batch) == 1:
            self._waiting.extend(batch)
        else:
            self._waiting.extendleft(reversed(batch))
        self._most = 1

    def _start(self, job: Claimed, delivery: Delivery) -> None:
        handler = self._attempts.handler(job.type, job.version)
        if handler is None:  # the claim compares what the wake-up named, and that was looked up
            raise LookupError(f"no handler for {job.type} v{job.version}")
        live = self._attempts.live(job, handler)
        if handler.is_async:  # a thread cannot be left behind: it holds what it works with
            live.on_abandoned = partial(self._abandon, job.type)
        self._live.add(live)
        self._unclaimed.pop(job.id, None)
        self._free -= 1
        self._idle.clear()
        self._room.hold(job.id, delivery)
        if job.losses >= SUSPICIOUS:
            self._suspect = job.id
        mark = f"{self.queue}/{job.priority}"
        self.watermarks[mark] = max(job.due_at, self.watermarks.get(mark, 0.0))
        self._facts.claimed(job, read_as=handler.version)
        if job.parent_id is not None:
            self._following.items_changed((job.parent_id,))
        self._tasks[job.id] = asyncio.create_task(self._attempt(job, handler, delivery))

    async def _attempt(self, job: Claimed, handler: Handler, delivery: Delivery) -> None:
        started = time.monotonic()
        live = self._live.get(job.id)
        live.task = asyncio.current_task()  # not before: a task canceled unbegun would tell nobody
        speak_of(job)
        if tracing.spans is None:
            outcome = await self._attempts.run(job, handler, live)
        else:
            span = tracing.spans.attempt(job, delivery, self._source)
            span.enter()
            outcome = await self._attempts.run(job, handler, live)
            span.end(*words(outcome))
        live.task = None  # too late to cancel: what happened is being written
        if live.abandoned:  # what there was to write about it is written
            return
        self._settling.add(Ended(job, live, handler, outcome, time.monotonic() - started))

    def settled(self, facts: Sequence[Settled]) -> None:
        """Let go of what is recorded: delivery, slot and lease."""
        void: list[Delivery] = []
        for fact in facts:
            delivery = self._release(fact.job.id)
            if delivery is not None and fact.counted:
                self._consumer.settle(delivery)
            elif delivery is not None:
                void.append(delivery)
            self._forget(fact.job.id)
        for delivery in void:  # a crash of the database may have taken the claim back
            self.receive(delivery)
        failpoints.passing("ack.sent")
        self._facts.settled(facts)

    def _release(self, job_id: UUID) -> Delivery | None:
        """Free the slot of a job, and give its delivery if that is still held."""
        self._live.remove(job_id)
        self._tasks.pop(job_id, None)
        self._free += 1
        if job_id == self._suspect:
            self._suspect = None
        self._some.set()
        if not self._tasks:
            self._idle.set()
        return self._room.let_go(job_id)

    def _abandon(self, job_type: str, live: Live) -> None:
        """Give back the slot of what does not stop; the job is others' by now, or ended."""
        self._abandoned.take(live, self._tasks[live.job_id], job_type)
        delivery = self._release(live.job_id)
        if delivery is not None:
            self._consumer.settle(delivery)
        self._forget(live.job_id)

    def _abandon_void(self) -> None:
        now = time.monotonic()
        for live in self._live.of(list(self._tasks)):
            since = live.void_since(self._limits.lease_seconds)
            if since is not None and now > since + self._limits.stubborn:
                live.interrupt()
                live.abandon()

    async def _watch_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await wait(stop, min(0.5, self._limits.detach_after / 4))
            await self._give_up_waiting(stop)
            self._abandon_void()
            await self._detach()

    async def _give_up_waiting(self, stop: asyncio.Event) -> None:
        limit = time.monotonic() - PATIENCE
        tired = [each for each in self._waiting if each.since < limit]
        if tired and not self._free:
            self._waiting = deque(each for each in self._waiting if each.since >= limit)
            await self._reissue(tired, stop)
        behind = [each for each in self._later if each.since < limit]
        if behind:
            self._later = [each for each in self._later if each.since >= limit]
            await self._reissue(behind, stop, ours=False)

    async def _reissue(
        self,
        waiting: Sequence[Waiting],
        stop: asyncio.Event,
        *,
        pause: float = 0,
        ours: bool = True,
    ) -> None:
        """Send these wake-ups again under the same epoch, then let the deliveries go.

        Stopped while the database is away, give them back to the queue as they are.
        """
        if not waiting:
            return
        jobs = [(each.wake.job_id, each.wake.epoch) for each in waiting]
        rows = await issue_again(self._engine, jobs, stop, pause=pause)
        if rows is not None:
            self._relay.hand_over(rows)
            self._facts.reissued(len(rows))
        let_go = self._consumer.hand_back if rows is None else self._consumer.settle
        for each in waiting:
            let_go(each.delivery)
            if ours:
                self._forget(each.wake.job_id)

    async def _detach(self) -> None:
        """Let long jobs live on by their lease alone: the broker must not end our consumer."""
        long = self._room.detach()
        if long:
            log.info("detached", queue=self.queue, jobs=[str(job_id) for job_id in long])
        elif self._room.left(self._epochs) == self._prefetch:
            return
        self._room.begin_anew(self._epochs)
        prefetch = self._room.left(self._epochs)
        await self._consumer.resize(prefetch, settling=long.values())
        self._prefetch = prefetch

    async def _drain(self) -> None:
        """Give back what is not begun, let end what ends in time, stop the rest."""
        self._closed = True
        for each in (*self._unclaimed.values(), *self._later):
            self._consumer.hand_back(each.delivery)
        self._unclaimed.clear()
        self._waiting.clear()
        self._later.clear()
        with_grace = asyncio.create_task(self._idle.wait())
        await asyncio.wait({with_grace}, timeout=self._limits.grace)
        with_grace.cancel()
        for job in self._live.of(self._tasks):
            job.end(Ending.SHUTDOWN)
        await self._ended_or_stuck()

    async def _ended_or_stuck(self) -> None:
        """Wait for what was told to stop; what does not end keeps its lease until we exit."""
        idle = asyncio.create_task(self._idle.wait())
        await asyncio.wait({idle}, timeout=LAST_SECONDS)
        idle.cancel()
        if self._tasks:
            log.warning("jobs did not stop; their leases will run out", jobs=len(self._tasks))


def all_watermarks(lanes: Iterable[Lane]) -> dict[str, float]:
    """Give how far the lanes have come, for the reconciler; called from the heartbeat's thread."""
    copies = [dict(lane.watermarks) for lane in lanes]  # at once: the event loop writes to them
    return {mark: due for each in copies for mark, due in each.items()}
