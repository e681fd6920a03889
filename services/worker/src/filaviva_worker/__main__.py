"""The worker process: composition only."""

import asyncio

from filaviva import service
from filaviva.app import load_app
from filaviva.attendance import beside
from filaviva.broker.publisher import Publisher
from filaviva.built_in import with_built_in
from filaviva.database import connect
from filaviva.errors import ConfigurationError, FilavivaError
from filaviva.notify import Notifier
from filaviva.relay import Relay
from filaviva.relay_meter import Meter
from filaviva.service import serve
from filaviva.settings import Settings
from filaviva.telemetry.metrics import Metrics
from filaviva_worker.readiness import Readiness, Slots
from filaviva_worker.worker import CLEAN_UP, Worker

METRICS_PORT = 9102


async def work(settings: Settings, stop: asyncio.Event) -> None:
    """Work on the app's queues until stopped; what supports the work ends after it."""
    if not settings.app:
        raise ConfigurationError("FILAVIVA_APP: found nothing, expected package.module:attribute")
    app = with_built_in(load_app(settings.app), settings.callbacks, settings.drill)
    postgres = settings.postgres
    url, size = postgres.url.get_secret_value(), postgres.pool_size
    engine = connect(url, name="filaviva-worker", size=size)
    transactions = connect(url, name="filaviva-handlers", size=size, scans=True)
    metrics = Metrics(revision=settings.revision)
    metrics.know("worker", app.reads())
    publisher = Publisher(
        settings.broker.url.get_secret_value(),
        confirm_timeout=settings.broker.confirm_timeout_seconds,
    )
    relay, notifier = Relay(engine, publisher, listener=Meter(metrics)), Notifier(engine)
    worker = Worker(
        app,
        settings,
        engine=engine,
        transactions=transactions,
        relay=relay,
        notifier=notifier,
        metrics=metrics,
    )
    watched = beside(
        engine,
        "worker",
        settings,
        metrics,
        Readiness(engine, relay, worker),
        port=METRICS_PORT,
        renewals=worker.heartbeat.gaps,
    )
    after = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        means = (relay, notifier, worker.following, Slots(worker, metrics))
        group.create_task(serve(*means, *watched, stop=after))
        await worker.run(stop)
        after.set()
    await publisher.close()
    await transactions.dispose()
    await engine.dispose()
    if worker.worn_out:
        raise WornOut(len(worker.abandoned))


class WornOut(FilavivaError):
    """As many handlers as there are slots ignore that they were told to stop."""

    def __init__(self, handlers: int) -> None:
        super().__init__(
            f"{handlers} handlers ignore that they were told to stop, as many as there are slots: "
            "this process ends so that a fresh one is started. Let them end when their await "
            "raises CancelledError"
        )


def main() -> None:
    """Run the worker service."""
    service.run("worker", work, patience=_patience)


def _patience(settings: Settings) -> float:
    """What running jobs get to end, and then what it takes to record that and part."""
    return settings.worker.grace_seconds + 2 * CLEAN_UP.total_seconds()


if __name__ == "__main__":
    main()
