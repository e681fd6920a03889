"""Look at RabbitMQ: is it there, may it take messages, is our topology on it, who listens."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpx2

from filaviva.broker import drift
from filaviva.broker.connection import (
    NOT_FOUND,
    Connection,
    Declined,
    client_errors,
    close,
    connect,
    open_channel,
)
from filaviva.broker.topology import Topology
from filaviva.errors import ConfigurationError, Unreachable
from filaviva.few import few
from filaviva.operations.doctor.bounded import ANSWER_SECONDS
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.management import Management, why
from filaviva.operations.routes import Routes

_FLOOR: Final = (3, 10)
_NEWEST_TESTED: Final = (4, 3)
_SHOWN: Final = 3

_NEEDS_MANAGEMENT: Final = (
    "set FILAVIVA_BROKER__MANAGEMENT_URL=http://user:password@host:15672 to let doctor look"
)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the broker is; without a management URL less can be seen."""

    amqp: str
    management: str | None = None
    topology: Topology = field(default_factory=Topology)

    @property
    def where(self) -> str:
        """Give the AMQP address without its password."""
        parts = urlsplit(self.amqp)
        return f"{parts.hostname}:{parts.port or 5672}{parts.path or '/'}"

    @property
    def vhost(self) -> str:
        """Give the virtual host's name."""
        return unquote(urlsplit(self.amqp).path[1:]) or "/"


async def examine(addresses: Addresses, known: Awaitable[Routes | None]) -> AsyncIterator[Finding]:
    """Look at everything; `known` are the registry's routes (None: the database could not say)."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            connection = await connect(addresses.amqp, name="filaviva doctor")
    except (Unreachable, TimeoutError) as away:
        why = str(away) or f"it does not answer within {ANSWER_SECONDS:g} s"
        yield wrong(
            "broker",
            f"{addresses.where} cannot be used: {why}",
            "start RabbitMQ, or correct FILAVIVA_BROKER__URL",
        )
        return
    try:
        yield _version(connection, addresses.where)
        async for finding in _alarms(addresses):
            yield finding
        routes = await known
        if routes is not None:
            async for finding in _topology(addresses, routes):
                yield finding
        async for finding in _consumers(connection, addresses.topology):
            yield finding
    finally:
        await close(connection)


def _version(connection: Connection, where: str) -> Finding:
    properties: Mapping[str, Any] = getattr(connection, "server_properties", {})
    text = properties.get("version", "")
    text = text.decode() if isinstance(text, bytes) else str(text)
    found = tuple(map(int, re.findall(r"\d+", text)[:2]))
    what = f"RabbitMQ {text or 'of an unknown version'} at {where}"
    if found < _FLOOR:
        return wrong("broker", f"{what}, supported are 3.10 to 4.3", "upgrade RabbitMQ")
    if found > _NEWEST_TESTED:
        return attention("broker", f"{what}, tested are 3.10 to 4.3", "test before you rely on it")
    return ok("broker", what)


async def _alarms(addresses: Addresses) -> AsyncIterator[Finding]:
    if addresses.management is None:
        yield unknown("alarms", "no management URL", _NEEDS_MANAGEMENT)
        return
    management = Management(addresses.management)
    try:
        async with management:
            nodes = await management.get("/api/nodes")
    except (httpx2.HTTPError, ValueError) as failed:
        yield unknown(
            "alarms",
            f"the management API at {management.origin}: {why(failed)}",
            "correct FILAVIVA_BROKER__MANAGEMENT_URL; its user needs the tag monitoring",
        )
        return
    raised = sorted(_raised(nodes))
    if raised:
        yield wrong(
            "alarms",
            f"{', '.join(raised)}: the broker takes no message until it is over",
            "free memory or disk on the broker's machine; `rabbitmq-diagnostics alarms` shows both",
        )
    else:
        yield ok("alarms", "none")


def _raised(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for node in nodes:
        if node.get("mem_alarm"):
            yield f"memory on {node['name']}"
        if node.get("disk_free_alarm"):
            yield f"disk on {node['name']}"


async def _topology(addresses: Addresses, routes: Routes) -> AsyncIterator[Finding]:
    if addresses.management is None:
        yield unknown("topology", "no management URL", _NEEDS_MANAGEMENT)
        return
    wanted = routes.declarations(addresses.topology)
    try:
        found = await drift.verify(addresses.management, addresses.vhost, wanted)
    except (Unreachable, ConfigurationError, ValueError) as failed:
        yield unknown("topology", str(failed), "correct FILAVIVA_BROKER__MANAGEMENT_URL")
        return
    if not found:
        yield ok("topology", f"as declared, {len(wanted.queues)} queues")
        return
    yield wrong(
        "topology",
        few(found, _SHOWN, between="; "),
        "run `filaviva topology plan`, then `filaviva topology apply`",
    )


async def _consumers(connection: Connection, topology: Topology) -> AsyncIterator[Finding]:
    listeners = (
        (topology.retry_requests, "retry-scheduler"),
        (topology.dead_letters, "dlq-handler"),
        (topology.unroutable, "dlq-handler"),
    )
    for queue, service in listeners:
        yield await _consumer(connection, queue, service)


async def _consumer(connection: Connection, queue: str, service: str) -> Finding:
    check = f"{service} on {queue}"
    try:
        channel = await open_channel(connection, confirms=False)
        with client_errors():
            declared = await channel.queue_declare(queue, passive=True)
        await close(channel)
    except Declined as declined:
        if declined.closure.code != NOT_FOUND:
            return unknown(check, str(declined), "give this user the right to read the queue")
        return wrong(check, "there is no such queue", "run `filaviva setup`")
    except Unreachable as lost:
        return unknown(check, str(lost), "run `filaviva doctor` again")
    if declared.consumer_count:
        waiting = declared.message_count or 0
        return ok(check, f"{declared.consumer_count} consumer(s), {waiting} waiting")
    return wrong(check, "nobody consumes it", f"run `filaviva run {service}`")
