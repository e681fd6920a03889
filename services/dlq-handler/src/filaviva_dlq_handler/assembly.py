"""How the parts of the dlq-handler fit together."""

import asyncio
from functools import partial
from importlib.metadata import version

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.attendance import beside
from filaviva.broker.connection import user_of
from filaviva.broker.consumer import Consumer
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.database import connect
from filaviva.events import Publishers
from filaviva.http import BodyLimits, HttpServer
from filaviva.notify import Notifier
from filaviva.operations.following import Following
from filaviva.operations.keys import KeyRing
from filaviva.registry import Registry
from filaviva.relay import Relay
from filaviva.relay_meter import Meter
from filaviva.service import serve
from filaviva.settings import Settings
from filaviva.telemetry.metrics import Metrics
from filaviva.violations import Violations
from filaviva_dlq_handler.announcer import Announcer
from filaviva_dlq_handler.api import Api, Routes
from filaviva_dlq_handler.closing import Closing
from filaviva_dlq_handler.gate import CONSUMER
from filaviva_dlq_handler.intake import Intake
from filaviva_dlq_handler.readiness import Readiness
from filaviva_dlq_handler.sending import Sending
from filaviva_dlq_handler.slack import Slack, Target
from filaviva_dlq_handler.waiting_events import WaitingEvents

HTTP_PORT = 8081
METRICS_PORT = 9104
# A dead letter may be 16 MiB: what is held unacknowledged must fit into memory.
PREFETCH = 50


async def look_after(settings: Settings, stop: asyncio.Event) -> None:
    """Take in, tell, send back and close until stopped; what carries messages away ends last."""
    postgres, url = settings.postgres, settings.broker.url.get_secret_value()
    metrics, topology = Metrics(revision=settings.revision), Topology()
    metrics.know("dlq-handler")
    engine = connect(postgres.url.get_secret_value(), name=CONSUMER, size=postgres.pool_size)
    publisher = Publisher(url, confirm_timeout=settings.broker.confirm_timeout_seconds)
    relay, notifier = Relay(engine, publisher, listener=Meter(metrics)), Notifier(engine)
    registry = Registry(engine, told=partial(metrics.know, "dlq-handler"))
    following = Following.by(engine, relay, notifier, metrics)
    announcer = Announcer(
        metrics,
        Violations(metrics, registry),
        hand_over=relay.hand_over,
        changed=following.changed,
        hurry=relay.hurry,
    )
    intake = Intake(
        engine,
        registry,
        done=announcer,
        publishers=Publishers.trusting(user_of(url), settings.events.tenants),
        topology=topology,
    )
    sending = Sending(
        engine,
        registry,
        publisher,
        hand_over=relay.hand_over,
        metrics=metrics,
        changed=following.changed,
    )
    slack = Slack(engine, _target(settings), metrics)
    consumers = [
        _consumer(url, queue, intake, metrics)
        for queue in (topology.dead_letters, topology.unroutable)
    ]
    ready = Readiness(engine, consumers, publisher)
    http = _http(
        settings, Routes(engine, registry, sending.wake), ready, engine, stop=stop, metrics=metrics
    )
    watched = beside(engine, CONSUMER, settings, metrics, ready, port=METRICS_PORT)
    await registry.step()
    closing = Closing(engine, metrics)
    waiting = WaitingEvents(engine, metrics, hand_over=relay.hand_over)
    after = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        lasting = (relay, publisher, notifier, following, intake)
        group.create_task(serve(*lasting, *watched, stop=after))
        try:
            loops = (registry, sending, closing, waiting, slack, http)
            await serve(*consumers, *loops, stop=stop)
        finally:
            after.set()
    await publisher.close()
    await engine.dispose()


def _target(settings: Settings) -> Target:
    url = settings.slack.webhook_url
    return Target(url, environment=settings.environment, console_url=settings.console_url)


def _consumer(url: str, queue: str, intake: Intake, metrics: Metrics) -> Consumer:
    consumer: Consumer
    consumer = Consumer(
        url,
        queue,
        prefetch=PREFETCH,
        service=CONSUMER,
        on_delivery=intake.receive(queue, lambda one: consumer.settle(one)),  # noqa: PLW0108 - not yet bound
        on_rebuilt=lambda cause: metrics.consumer_rebuilt.labels(cause).inc(),
    )
    return consumer


def _http(  # noqa: PLR0913 - what an HTTP side is made of
    settings: Settings,
    routes: Routes,
    ready: Readiness,
    engine: AsyncEngine,
    *,
    stop: asyncio.Event,
    metrics: Metrics,
) -> HttpServer:
    api = Api(
        routes,
        version=version("filaviva-dlq-handler"),
        authenticator=KeyRing(engine),
        ready=ready,
        stopping=stop,
        metrics=metrics,
        body_limits=BodyLimits(accepted=settings.http.max_body_bytes),
    )
    return HttpServer(api, host=settings.http.host, port=settings.http.port or HTTP_PORT)
