"""The worker: one lane per queue, one heartbeat, and the duties they share."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from importlib.metadata import version
from itertools import groupby
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.app import App
from filaviva.broker.connection import user_of
from filaviva.broker.consumer import Consumer
from filaviva.broker.topology import Topology
from filaviva.errors import ConfigurationError
from filaviva.events import Publishers
from filaviva.limits import TenantLimits
from filaviva.listening import Listening
from filaviva.notify import CANCELS, Notifier
from filaviva.operations.following import Following
from filaviva.operations.releasing import Releasing
from filaviva.relay import Relay
from filaviva.service import Loop, end_within, process_id
from filaviva.settings import Settings
from filaviva.standing import Standing
from filaviva.telemetry.metrics import Metrics
from filaviva.uses import Uses
from filaviva_worker import process
from filaviva_worker.abandoned import Abandoned
from filaviva_worker.attempt import Attempts
from filaviva_worker.cancels import Cancels
from filaviva_worker.control import guard
from filaviva_worker.event_intake import EventIntake
from filaviva_worker.facts import Facts, Settled
from filaviva_worker.heartbeat import Heartbeat, Presence
from filaviva_worker.ladder import Ladder, Patience
from filaviva_worker.lane import LAST_SECONDS, Lane, Limits, all_watermarks
from filaviva_worker.lately import Lately
from filaviva_worker.limited import Limited
from filaviva_worker.live import LiveJobs
from filaviva_worker.sampling import Sampling
from filaviva_worker.settle import Settling
from filaviva_worker.strangers import Strangers
from filaviva_worker.tools import Tools

log = structlog.get_logger("filaviva")

# The broker must not end a consumer before we detach its jobs (honoured from RabbitMQ 4.3 on).
_MARGIN = timedelta(minutes=20)
# What a stopped job gets to clean up and be recorded, before its delivery is let go.
CLEAN_UP = timedelta(seconds=10)


class Worker:
    """Everything between the broker's work queues and the recorded outcomes."""

    def __init__(  # noqa: PLR0913 - the composition of a process
        self,
        app: App,
        settings: Settings,
        *,
        engine: AsyncEngine,
        transactions: AsyncEngine,
        relay: Relay,
        notifier: Notifier,
        metrics: Metrics,
    ) -> None:
        self.id = process_id()
        self._settings = settings
        self._metrics = metrics
        self._topology = Topology()
        self._engine = engine
        self._transactions = transactions
        guard(transactions)
        self._relay = relay
        self._notifier = notifier
        self.following = Following.by(engine, relay, notifier, metrics)
        self._facts = Facts(metrics)
        self._lately = Lately()
        most = settings.worker.concurrency
        self.abandoned = Abandoned(metrics, most=most, worn_out=self._wear_out)
        self._stop: asyncio.Event | None = None
        self.worn_out = False
        self._uses = Uses(engine)
        self._sampling = Sampling(app, engine, settings.samples)
        self._live = LiveJobs()
        self.lanes: list[Lane] = []
        self.consumers: list[Consumer] = []
        self._settlings: list[Settling] = []
        self._intakes: list[EventIntake] = []
        self.heartbeat = self._heartbeat(app, wanted_queues(app, settings))
        self._standing = Standing(engine)
        self._tenant_limits = TenantLimits(engine)
        self._releasing = Releasing(engine, self._tenant_limits, relay.hand_over)
        self._cancels = Listening(engine, CANCELS, Cancels(self._live, self.heartbeat.hurry).heard)
        ladder = Ladder(
            engine.execution_options(isolation_level="AUTOCOMMIT"), metrics, _patience(settings)
        )
        self._attempts = Attempts(
            app,
            settings.app or "",
            self._tools(),
            self._standing,
            ladder,
            offer=self._sampling.offer,
        )
        self._strangers = Strangers(self.id, engine, relay, self._facts)
        for queue in wanted_queues(app, settings):
            self._open_lane(queue)
        if any(not h.is_async and h.policy.timeout is not None for h in app.all_handlers()):
            process.preload(settings.app or "")

    @property
    def slots(self) -> tuple[int, int]:
        """Give (busy, free) over all lanes."""
        busy, free = zip(*(lane.slots for lane in self.lanes), strict=True)
        return sum(busy), sum(free)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until stopped or worn out, end what runs, record it, and be gone."""
        self._stop = stop
        recorded, gone = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for consumer in self.consumers:
                group.create_task(consumer.run(stop))
            beating = group.create_task(self.heartbeat.run(gone))
            hearing = (self._standing, self._cancels, self._tenant_limits, self._releasing)
            lasting = [group.create_task(each.run(gone)) for each in hearing]
            recording: tuple[Loop, ...] = (*self._settlings, self._uses, self._sampling)
            settling = [group.create_task(each.run(recorded)) for each in recording]
            lanes = [group.create_task(lane.run(stop)) for lane in self.lanes]
            await stop.wait()
            self.heartbeat.drain()
            self._strangers.stop()
            for intake in self._intakes:
                intake.stop()
            await asyncio.wait(lanes)
            recorded.set()
            if await end_within(LAST_SECONDS, settling):
                # Safe all the same: their leases run out, and others do the work again.
                log.warning("ended without the database: outcomes are not recorded")
            gone.set()
            await asyncio.wait({beating})
            for each in lasting:  # they only read, and a silent database must not keep us
                each.cancel()

    def _wear_out(self) -> None:
        """Stop: as much goes on here that nobody can stop as there are slots."""
        self.worn_out = True
        if self._stop is not None:
            self._stop.set()

    def _tools(self) -> Tools:
        return Tools(
            engine=self._engine,
            autocommit=self._engine.execution_options(isolation_level="AUTOCOMMIT"),
            transactions=self._transactions,
            notifier=self._notifier,
            metrics=self._metrics,
            lease_is_fresh=lambda: self.heartbeat.fresh,
            max_result_bytes=self._settings.worker.max_result_bytes,
        )

    def _heartbeat(self, app: App, queues: Sequence[str]) -> Heartbeat:
        presence = Presence(
            id=self.id,
            app=app.name,
            queues=tuple(queues),
            reads=what_it_reads(app),
            slots=self._settings.worker.concurrency * len(queues),
            release=" ".join(filter(None, (version("filaviva"), self._settings.revision))),
        )
        return Heartbeat(
            self._settings.postgres.url.get_secret_value(),
            self._live,
            presence,
            lease_seconds=self._settings.worker.lease_seconds,
            watermarks=lambda: all_watermarks(self.lanes),
            lately=self._lately.shown,
        )

    def _publishers(self) -> Publishers:
        own = user_of(self._settings.broker.url.get_secret_value())
        return Publishers.trusting(own, self._settings.events.tenants)

    def _open_lane(self, queue: str) -> None:
        group = self._settings.worker
        events = EventIntake(
            queue,
            engine=self._engine,
            relay=self._relay,
            topology=self._topology,
            facts=self._facts,
            uses=self._uses,
            publishers=self._publishers(),
        )
        lane = Lane(
            queue,
            worker=self.id,
            engine=self._engine,
            relay=self._relay,
            attempts=self._attempts,
            live=self._live,
            strangers=self._strangers,
            events=events,
            limited=Limited(self._engine, self._tenant_limits),
            facts=Facts(self._metrics, self._lately.of(queue)),
            following=self.following,
            abandoned=self.abandoned,
            limits=Limits(
                group.concurrency,
                group.lease_seconds,
                group.detach_after_seconds,
                group.grace_seconds,
                group.cancel_limit_seconds,
            ),
        )
        consumer = Consumer(
            self._settings.broker.url.get_secret_value(),
            self._topology.work(queue),
            prefetch=group.concurrency,
            service="worker",
            on_delivery=lane.receive,
            consumer_timeout=timedelta(seconds=group.detach_after_seconds) + _MARGIN,
            on_rebuilt=lambda cause: self._metrics.consumer_rebuilt.labels(cause).inc(),
            linger=timedelta(seconds=group.grace_seconds) + CLEAN_UP,
        )

        def settled(facts: Sequence[Settled]) -> None:
            lane.settled(facts)
            self._notifier.changed(fact.job.id for fact in facts)
            self._releasing.ended(fact.job.tenant for fact in facts)
            self.following.items_changed(fact.job.parent_id for fact in facts)

        settling = Settling(self._engine, self._relay, self._topology, settled)
        lane.attach(consumer, settling)
        self.lanes.append(lane)
        self._intakes.append(events)
        self.consumers.append(consumer)
        self._settlings.append(settling)


def _patience(settings: Settings) -> Patience:
    group = settings.worker
    return Patience(cooperative=group.cancel_grace_seconds, limit=group.cancel_limit_seconds)


def wanted_queues(app: App, settings: Settings) -> tuple[str, ...]:
    """Give the queues to work on: those that the settings name, or all of the app's."""
    wanted = settings.worker.queues or app.queues
    unknown = sorted(set(wanted) - set(app.queues))
    if unknown:
        raise ConfigurationError(
            f"FILAVIVA_WORKER__QUEUES: found {', '.join(unknown)}, which no handler of app "
            f"{app.name!r} reads; expected some of {', '.join(app.queues) or 'none'}"
        )
    if not wanted:
        raise ConfigurationError(
            f"FILAVIVA_APP: app {app.name!r} has no handler; expected at least one @app.handler"
        )
    return tuple(wanted)


def what_it_reads(app: App) -> list[dict[str, Any]]:
    """List the versions that the app reads, as ranges without a gap."""
    return [
        {"type": kind, "min": low, "max": high}
        for kind, versions in app.reads().items()
        for low, high in _ranges(versions)
    ]


def _ranges(versions: Sequence[int]) -> Iterator[tuple[int, int]]:
    # Where versions follow each other, their distance from the place in the list stays the same.
    for _, run in groupby(enumerate(versions), key=_distance):
        numbers = [version for _, version in run]
        yield numbers[0], numbers[-1]


def _distance(placed: tuple[int, int]) -> int:
    place, version = placed
    return version - place
