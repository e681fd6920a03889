"""How the parts of the retry-scheduler fit together."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.attendance import beside
from filaviva.broker.consumer import Consumer
from filaviva.broker.depths import QueueDepths
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.database import connect
from filaviva.limits import TenantLimits
from filaviva.notify import Notifier
from filaviva.operations.following import Following
from filaviva.operations.quotas import Quotas
from filaviva.operations.releasing import Releasing
from filaviva.relay import Relay
from filaviva.relay_meter import Meter as RelayMeter
from filaviva.service import Loop, process_id, serve
from filaviva.settings import Settings
from filaviva.telemetry.metrics import Metrics
from filaviva.turns import Turns
from filaviva_retry_scheduler.announcer import Announcer
from filaviva_retry_scheduler.batches import BatchSweep
from filaviva_retry_scheduler.calendar import Calendar
from filaviva_retry_scheduler.coming import Coming
from filaviva_retry_scheduler.counting import Counting
from filaviva_retry_scheduler.dispatcher import Dispatcher
from filaviva_retry_scheduler.meter import Meter
from filaviva_retry_scheduler.readiness import Readiness
from filaviva_retry_scheduler.reconciler import Reconciler
from filaviva_retry_scheduler.retention import Retention
from filaviva_retry_scheduler.scheduler import CONSUMER, Scheduler
from filaviva_retry_scheduler.sweeper import Sweeper

METRICS_PORT = 9103
TURNS = "filaviva turns"
PREFETCH = 400
RELEASE_SECONDS = 1.0
LINGER = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the duties share."""

    settings: Settings
    metrics: Metrics
    meter: Meter
    engine: AsyncEngine
    publisher: Publisher
    relay: Relay
    notifier: Notifier
    following: Following
    limits: TenantLimits
    releasing: Releasing
    turn_depths: QueueDepths
    turns: Turns
    announcer: Announcer


async def schedule(settings: Settings, stop: asyncio.Event) -> None:
    """Decide, sweep and reconcile until stopped; what carries the messages away ends after it."""
    parts = _parts(settings)
    metrics, engine, turns = parts.metrics, parts.engine, parts.turns
    scheduler = Scheduler(
        engine,
        parts.announcer,
        parts.publisher,
        settle=lambda delivery: consumer.settle(delivery),  # noqa: PLW0108 - not yet bound
        gate=turns,
    )
    consumer = _consumer(settings, scheduler, metrics)
    ready = Readiness(engine, consumer, parts.publisher)
    watched = beside(engine, CONSUMER, settings, metrics, ready, port=METRICS_PORT)
    depths, after = QueueDepths(_broker(settings)), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        # The scheduler works on until the consumer has let go of everything.
        carrying = (scheduler, parts.relay, parts.notifier, parts.following, turns)
        group.create_task(serve(*carrying, *watched, depths, parts.turn_depths, stop=after))
        await serve(consumer, *_duties(parts, depths), stop=stop)
        after.set()
    await parts.publisher.close()
    await engine.dispose()


def _parts(settings: Settings) -> Parts:
    postgres, broker = settings.postgres, settings.broker
    metrics = Metrics(revision=settings.revision)
    metrics.know("retry-scheduler")
    engine = connect(postgres.url.get_secret_value(), name=CONSUMER, size=postgres.pool_size)
    publisher = Publisher(_broker(settings), confirm_timeout=broker.confirm_timeout_seconds)
    relay, notifier = Relay(engine, publisher, listener=RelayMeter(metrics)), Notifier(engine)
    following = Following.by(engine, relay, notifier, metrics)
    limits, turn_depths = TenantLimits(engine), QueueDepths(_broker(settings), name=TURNS)
    releasing = Releasing(engine, limits, relay.hand_over, poll=RELEASE_SECONDS)

    def changed(jobs: Iterable[UUID]) -> None:
        following.changed(jobs)
        releasing.hurry()

    meter = Meter(metrics)
    return Parts(
        settings=settings,
        metrics=metrics,
        meter=meter,
        engine=engine,
        publisher=publisher,
        relay=relay,
        notifier=notifier,
        following=following,
        limits=limits,
        releasing=releasing,
        turn_depths=turn_depths,
        turns=Turns(engine, turn_depths),
        announcer=Announcer(relay.hand_over, listener=meter, changed=changed, hurry=relay.hurry),
    )


def _broker(settings: Settings) -> str:
    return settings.broker.url.get_secret_value()


def _consumer(settings: Settings, scheduler: Scheduler, metrics: Metrics) -> Consumer:
    return Consumer(
        _broker(settings),
        Topology().retry_requests,
        prefetch=PREFETCH,
        service=CONSUMER,
        on_delivery=scheduler.receive,
        on_rebuilt=lambda cause: metrics.consumer_rebuilt.labels(cause).inc(),
        linger=LINGER,
    )


def _duties(parts: Parts, depths: QueueDepths) -> Sequence[Loop]:
    engine, announcer, turns = parts.engine, parts.announcer, parts.turns
    settings, limits, meter = parts.settings, parts.limits, parts.meter
    days = settings.retention.dead_letters_days
    return (
        Sweeper(engine, announcer, lease_seconds=settings.worker.lease_seconds, gate=turns),
        BatchSweep(engine, parts.following),
        Reconciler(engine, depths, announcer, letters_days=days, gate=turns),
        Calendar(engine, announcer, gate=turns, quotas=Quotas(limits)),
        limits,
        parts.releasing,
        Dispatcher(
            engine,
            parts.turn_depths,
            parts.relay.hand_over,
            limits,
            keeper=process_id(),
            listener=meter,
        ),
        Coming(engine),
        Counting(engine, parts.metrics),
        Retention(engine, settings.retention, listener=meter),
    )
