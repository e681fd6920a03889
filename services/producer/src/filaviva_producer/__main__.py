"""The producer process: composition only."""

import asyncio
from importlib.metadata import version

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva import service
from filaviva.broker.depths import QueueDepths
from filaviva.broker.publisher import Publisher
from filaviva.callbacks.serving import rules
from filaviva.database import connect
from filaviva.http import BodyLimits, HttpServer
from filaviva.limits import TenantLimits
from filaviva.listening import Listening, told
from filaviva.notify import CHANNEL
from filaviva.operations.keys import KeyRing
from filaviva.operations.links import Links
from filaviva.operations.quotas import Quotas
from filaviva.operations.submit import Submitter
from filaviva.registry import Registry
from filaviva.relay import Relay
from filaviva.service import LoopLag, serve
from filaviva.settings import Settings
from filaviva.telemetry.endpoint import Endpoint
from filaviva.telemetry.metrics import Metrics
from filaviva.turns import Turns
from filaviva_producer.api import Api
from filaviva_producer.canceling import Canceling
from filaviva_producer.erasing import Erasing
from filaviva_producer.meter import Meter
from filaviva_producer.page.acting import actions
from filaviva_producer.page.routes import Page
from filaviva_producer.places import Places
from filaviva_producer.pressure import Pressure
from filaviva_producer.publishing import Publishing
from filaviva_producer.readiness import Readiness
from filaviva_producer.reading import Reading
from filaviva_producer.retrying import Retrying
from filaviva_producer.scheduling import Scheduling
from filaviva_producer.streaming import Streaming
from filaviva_producer.streams import Streams
from filaviva_producer.submitting import Submitting
from filaviva_producer.waiting import Watch

HTTP_PORT = 8080
METRICS_PORT = 9101


async def produce(settings: Settings, stop: asyncio.Event) -> None:
    """Accept and show jobs until stopped; what carries their wake-ups away ends after the rest."""
    postgres, http, broker = settings.postgres, settings.http, settings.broker
    metrics = Metrics()
    engine = connect(
        postgres.url.get_secret_value(), name="filaviva-producer", size=postgres.pool_size
    )
    publisher = Publisher(
        broker.url.get_secret_value(), confirm_timeout=broker.confirm_timeout_seconds
    )
    relay, registry = Relay(engine, publisher, listener=Meter(metrics)), Registry(engine)
    watch, streams = Watch(engine), Streams(engine)
    links, streaming = _links(settings), _streaming(engine, streams, settings, metrics)
    canceling = Canceling(engine, metrics, relay.hand_over)
    pressure = Pressure(engine, metrics, limit=settings.producer.max_pending)
    retrying = Retrying(engine, registry, pressure, relay.hand_over)
    acts = actions(canceling, retrying)
    ready = Readiness(engine, publisher)
    limits = TenantLimits(engine)
    depths = QueueDepths(broker.url.get_secret_value(), name="filaviva turns")
    turns = Turns(engine, depths)
    callbacks = rules(settings.callbacks)
    submitter = Submitter(engine, relay.hand_over, quotas=Quotas(limits), turns=turns)
    api = Api(
        Submitting(
            submitter,
            registry,
            pressure,
            metrics,
            max_data_bytes=http.max_data_bytes,
            callbacks=callbacks,
            links=links,
        ),
        Reading(engine, watch, links),
        Erasing(engine),
        Scheduling(engine, registry, submitter, http.max_data_bytes, callbacks),
        Publishing(engine, relay.hand_over, registry, pressure, metrics, turns),
        canceling,
        streaming,
        retrying,
        *([] if links is None else [Page(engine, links, streaming, acts)]),
        version=version("filaviva-producer"),
        authenticator=KeyRing(engine),
        ready=ready,
        stopping=stop,
        body_limits=BodyLimits(accepted=http.max_body_bytes),
    )
    server = HttpServer(api, host=http.host, port=http.port or HTTP_PORT)
    port = settings.metrics.port or METRICS_PORT
    endpoint = Endpoint(metrics.registry, ready, host=settings.metrics.host, port=port)
    await registry.step()
    await limits.step()
    after = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        lasting = (relay, publisher, pressure, endpoint, LoopLag(metrics), turns, depths)
        group.create_task(serve(*lasting, stop=after))
        try:
            heard = Listening(engine, CHANNEL, told(watch.heard, streams.heard))
            await serve(server, registry, limits, watch, streams, heard, stop=stop)
        finally:
            after.set()
    await publisher.close()
    await engine.dispose()


def _links(settings: Settings) -> Links | None:
    secret, base_url = settings.links.secret, settings.links.base_url
    if secret is None:
        return None
    return Links(secret.get_secret_value(), base_url=base_url, days=settings.links.days)


def _streaming(
    engine: AsyncEngine, streams: Streams, settings: Settings, metrics: Metrics
) -> Streaming:
    limits = settings.producer
    places = Places(metrics.sse_clients, most=limits.max_streams)
    return Streaming(engine, streams, places, each=limits.max_streams_per_key)


def main() -> None:
    """Run the producer service."""
    service.run("producer", produce)


if __name__ == "__main__":
    main()
