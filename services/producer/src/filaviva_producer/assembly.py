"""How the parts of the producer fit together."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.attendance import beside
from filaviva.broker.depths import QueueDepths
from filaviva.broker.publisher import Publisher
from filaviva.callbacks.serving import rules
from filaviva.database import connect
from filaviva.http import BodyLimits, HttpServer
from filaviva.limits import TenantLimits
from filaviva.listening import Listening, told
from filaviva.notify import CHANNEL
from filaviva.operations.catalogue_links import CatalogueLinks
from filaviva.operations.keys import KeyRing
from filaviva.operations.links import Links
from filaviva.operations.quotas import Quotas
from filaviva.operations.submit import Submitter
from filaviva.registry import Registry
from filaviva.relay import Relay
from filaviva.relay_meter import Meter
from filaviva.service import serve
from filaviva.settings import Settings
from filaviva.telemetry.metrics import Metrics
from filaviva.turns import Turns
from filaviva.uses import Uses
from filaviva_producer.api import Api, Routes
from filaviva_producer.canceling import Canceling
from filaviva_producer.catalogue.routes import Catalogue
from filaviva_producer.contents import Contents
from filaviva_producer.contracts import Contracts
from filaviva_producer.describing import Describing
from filaviva_producer.erasing import Erasing
from filaviva_producer.page.acting import actions
from filaviva_producer.page.routes import Page
from filaviva_producer.pressure import Pressure
from filaviva_producer.publishing import Publishing
from filaviva_producer.readiness import Readiness
from filaviva_producer.reading import Reading
from filaviva_producer.retrying import Retrying
from filaviva_producer.scheduling import Scheduling
from filaviva_producer.seats import Seats
from filaviva_producer.streaming import Streaming
from filaviva_producer.streams import Streams
from filaviva_producer.submitting import Submitting
from filaviva_producer.waiting import Watch

HTTP_PORT = 8080
METRICS_PORT = 9101


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes are made of, and what turns beside them."""

    settings: Settings
    metrics: Metrics
    engine: AsyncEngine
    publisher: Publisher
    relay: Relay
    registry: Registry
    pressure: Pressure
    limits: TenantLimits
    depths: QueueDepths
    turns: Turns
    watch: Watch
    streams: Streams
    submitter: Submitter
    uses: Uses


async def produce(settings: Settings, stop: asyncio.Event) -> None:
    """Accept and show jobs until stopped; what carries their wake-ups away ends after the rest."""
    parts = _parts(settings)
    ready = Readiness(parts.engine, parts.publisher)
    http, metrics = settings.http, parts.metrics
    server = HttpServer(_api(parts, ready, stop), host=http.host, port=http.port or HTTP_PORT)
    watched = beside(parts.engine, "producer", settings, metrics, ready, port=METRICS_PORT)
    after = asyncio.Event()
    await parts.registry.step()
    await parts.limits.step()
    async with asyncio.TaskGroup() as group:
        carrying = (
            parts.relay,
            parts.publisher,
            parts.pressure,
            parts.turns,
            parts.depths,
            parts.uses,
        )
        group.create_task(serve(*carrying, *watched, stop=after))
        try:
            watch, streams = parts.watch, parts.streams
            heard = Listening(parts.engine, CHANNEL, told(watch.heard, streams.heard))
            seen = (parts.registry, parts.limits, watch, streams, heard)
            await serve(server, *seen, stop=stop)
        finally:
            after.set()
    await parts.publisher.close()
    await parts.engine.dispose()


def _parts(settings: Settings) -> Parts:
    postgres, broker = settings.postgres, settings.broker
    url, metrics = broker.url.get_secret_value(), Metrics(revision=settings.revision)
    metrics.know("producer")
    engine = connect(
        postgres.url.get_secret_value(), name="filaviva-producer", size=postgres.pool_size
    )
    publisher = Publisher(url, confirm_timeout=broker.confirm_timeout_seconds)
    relay, limits = Relay(engine, publisher, listener=Meter(metrics)), TenantLimits(engine)
    depths = QueueDepths(url, name="filaviva turns")
    turns = Turns(engine, depths)
    return Parts(
        settings=settings,
        metrics=metrics,
        engine=engine,
        publisher=publisher,
        relay=relay,
        registry=Registry(engine, told=partial(metrics.know, "producer")),
        pressure=Pressure(engine, limit=settings.producer.max_pending),
        limits=limits,
        depths=depths,
        turns=turns,
        watch=Watch(engine),
        streams=Streams(engine),
        submitter=Submitter(engine, relay.hand_over, quotas=Quotas(limits), turns=turns),
        uses=Uses(engine),
    )


def _api(parts: Parts, ready: Readiness, stop: asyncio.Event) -> Api:
    links, http = _links(parts.settings), parts.settings.http
    return Api(
        _submitting(parts, links),
        *_routes(parts, links),
        version=version("filaviva-producer"),
        authenticator=KeyRing(parts.engine),
        ready=ready,
        stopping=stop,
        metrics=parts.metrics,
        body_limits=BodyLimits(accepted=http.max_body_bytes),
    )


def _submitting(parts: Parts, links: Links | None) -> Submitting:
    return Submitting(
        parts.submitter,
        parts.registry,
        parts.pressure,
        parts.metrics,
        max_data_bytes=parts.settings.http.max_data_bytes,
        uses=parts.uses,
        callbacks=rules(parts.settings.callbacks),
        links=links,
    )


def _routes(parts: Parts, links: Links | None) -> Iterator[Routes]:
    engine, registry, pressure = parts.engine, parts.registry, parts.pressure
    metrics, hand_over = parts.metrics, parts.relay.hand_over
    most, callbacks = parts.settings.http.max_data_bytes, rules(parts.settings.callbacks)
    canceling = Canceling(engine, metrics, hand_over, parts.relay.hurry)
    retrying = Retrying(engine, registry, pressure, hand_over, parts.turns)
    streaming = _streaming(parts, links)
    yield Reading(engine, parts.watch, links)
    yield streaming
    yield canceling
    yield retrying
    yield Erasing(engine)
    yield Describing(registry)
    yield Catalogue(registry, _catalogue_links(parts.settings))
    yield Contracts(registry)
    yield Contents(engine, pressure, most)
    yield Scheduling(engine, registry, parts.submitter, most, callbacks)
    quotas = Quotas(parts.limits)
    turns, uses = parts.turns, parts.uses
    yield Publishing(engine, hand_over, registry, pressure, metrics, turns, quotas, uses, most)
    if links is not None:
        yield Page(engine, links, streaming, actions(canceling, retrying))


def _streaming(parts: Parts, links: Links | None) -> Streaming:
    limits = parts.settings.producer
    seats = Seats(
        parts.metrics.sse_clients,
        most=limits.max_streams,
        of_a_tenant=limits.max_streams_per_tenant,
    )
    return Streaming(parts.engine, parts.streams, seats, links, each=limits.max_streams_per_key)


def _catalogue_links(settings: Settings) -> CatalogueLinks | None:
    secret, previous = _secrets(settings)
    return None if secret is None else CatalogueLinks(secret, previous=previous)


def _links(settings: Settings) -> Links | None:
    secret, previous = _secrets(settings)
    if secret is None:
        return None
    links = settings.links
    return Links(secret, base_url=links.base_url, days=links.days, previous=previous)


def _secrets(settings: Settings) -> tuple[str | None, str | None]:
    """Give the secret that signs links, and the one before."""
    now, before = settings.links.secret, settings.links.previous_secret
    return (
        None if now is None else now.get_secret_value(),
        None if before is None else before.get_secret_value(),
    )
