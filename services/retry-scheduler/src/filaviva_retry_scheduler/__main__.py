"""The retry-scheduler process: composition only."""

import asyncio
import os
import socket
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID, uuid4

from filaviva import service
from filaviva.attendance import Attendance
from filaviva.broker.consumer import Consumer, Delivery
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
from filaviva.service import LoopLag, serve
from filaviva.settings import Settings
from filaviva.telemetry.endpoint import Endpoint
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
PREFETCH = 400
RELEASE_SECONDS = 1.0
LINGER = timedelta(seconds=10)


async def schedule(settings: Settings, stop: asyncio.Event) -> None:
    """Decide, sweep and reconcile until stopped; what carries the messages away ends after it."""
    postgres, broker = settings.postgres, settings.broker.url.get_secret_value()
    metrics = Metrics(revision=settings.revision)
    metrics.know("retry-scheduler")
    engine = connect(postgres.url.get_secret_value(), name=CONSUMER, size=postgres.pool_size)
    publisher = Publisher(broker, confirm_timeout=settings.broker.confirm_timeout_seconds)
    relay = Relay(engine, publisher, listener=RelayMeter(metrics))
    notifier = Notifier(engine)
    following = Following(
        engine,
        hand_over=relay.hand_over,
        changed=notifier.changed,
        hurry=relay.hurry,
        metrics=metrics,
    )
    meter, limits = Meter(metrics), TenantLimits(engine)
    turn_depths = QueueDepths(broker, name="filaviva turns")
    turns = Turns(engine, turn_depths)
    releasing = Releasing(engine, limits, relay.hand_over, poll=RELEASE_SECONDS)

    def changed(jobs: Iterable[UUID]) -> None:
        following.changed(jobs)
        releasing.hurry()

    announcer = Announcer(relay.hand_over, listener=meter, changed=changed, hurry=relay.hurry)

    def settle(delivery: Delivery) -> None:
        consumer.settle(delivery)

    scheduler = Scheduler(engine, announcer, publisher, settle=settle, gate=turns)
    consumer = Consumer(
        broker,
        Topology().retry_requests,
        prefetch=PREFETCH,
        service=CONSUMER,
        on_delivery=scheduler.receive,
        on_rebuilt=lambda cause: metrics.consumer_rebuilt.labels(cause).inc(),
        linger=LINGER,
    )
    depths = QueueDepths(broker)
    keeper = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    dispatcher = Dispatcher(
        engine, turn_depths, relay.hand_over, limits, keeper=keeper, listener=meter
    )
    duties = (
        Sweeper(engine, announcer, lease_seconds=settings.worker.lease_seconds, gate=turns),
        BatchSweep(engine, following),
        Reconciler(
            engine,
            depths,
            announcer,
            letters_days=settings.retention.dead_letters_days,
            gate=turns,
        ),
        Calendar(engine, announcer, gate=turns, quotas=Quotas(limits)),
        limits,
        releasing,
        dispatcher,
        Coming(engine),
        Counting(engine, metrics),
        Retention(engine, settings.retention, listener=meter),
    )
    endpoint = Endpoint(
        metrics.registry,
        Readiness(engine, consumer, publisher),
        host=settings.metrics.host,
        port=settings.metrics.port or METRICS_PORT,
    )
    lag, after = LoopLag(metrics), asyncio.Event()
    attendance = Attendance(engine, CONSUMER, settings, endpoint=endpoint, lag=lag)
    async with asyncio.TaskGroup() as group:
        # The scheduler works on until the consumer has let go of everything.
        support = (scheduler, relay, notifier, following, endpoint, lag, attendance)
        group.create_task(serve(*support, depths, turns, turn_depths, stop=after))
        await serve(consumer, *duties, stop=stop)
        after.set()
    await publisher.close()
    await engine.dispose()


def main() -> None:
    """Run the retry-scheduler service."""
    service.run("retry-scheduler", schedule)


if __name__ == "__main__":
    main()
