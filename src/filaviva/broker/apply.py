"""Bring the declarations onto a broker; only `setup` has the right to."""

import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from filaviva.broker.connection import (
    NOT_FOUND,
    Channel,
    Connection,
    Declined,
    client_errors,
    close,
    connect,
    open_channel,
)
from filaviva.broker.topology import Binding, Declarations, Exchange, Queue
from filaviva.errors import ConfigurationError

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?P<kind>\w+) '(?P<name>[^']+)'.*?: "
    r"received (?P<expected>.+?) but current is (?P<found>.+)"
)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something that exists under our name with other arguments."""

    kind: str
    name: str
    argument: str
    found: str
    expected: str

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name}: found {self.argument} = {self.found}, "
            f"expected {self.expected}. {self._way_out}"
        )

    @property
    def _way_out(self) -> str:
        if self.kind == "exchange":
            return f"Delete the exchange {self.name}, then run setup again."
        return (
            "Stop its consumers, delete the queue, then run setup again: "
            f"rabbitmqctl delete_queue {self.name} (jobs that waited in it are issued again)."
        )


async def apply(url: str, declarations: Declarations) -> None:
    """Declare everything; ConfigurationError names all that exists with other arguments.

    What does not conflict is declared even then; bindings that are gone are removed.
    """
    connection = await connect(url, name="filaviva setup")
    try:
        conflicts = await _Declaring(connection).all(declarations)
    finally:
        await close(connection)
    if conflicts:
        raise ConfigurationError("\n".join(str(conflict) for conflict in conflicts))


class _Declaring:
    """One pass over the declarations; a refused one costs its channel, so the next gets a new."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: Channel | None = None

    async def all(self, declarations: Declarations) -> list[Conflict]:
        every: list[Exchange | Queue | Binding] = [
            *declarations.exchanges,
            *declarations.queues,
            *declarations.bindings,
        ]
        answers = [await self._one(wanted) for wanted in every]
        for binding in declarations.gone:
            await self._remove(binding)
        return [answer for answer in answers if answer is not None]

    async def _remove(self, binding: Binding) -> None:
        if self._channel is None:
            self._channel = await open_channel(self._connection, confirms=False)
        with client_errors():  # one that is not there is no error
            await self._channel.queue_unbind(
                binding.destination, binding.source, binding.routing_key
            )

    async def _one(self, wanted: Exchange | Queue | Binding) -> Conflict | None:
        if self._channel is None:
            self._channel = await open_channel(self._connection, confirms=False)
        try:
            with client_errors():
                await _declare(self._channel, wanted)
        except Declined as declined:
            self._channel = None
            # A binding of what was refused just before has nowhere to lead: told already.
            if isinstance(wanted, Binding) and declined.closure.code == NOT_FOUND:
                return None
            conflict = _conflict(declined.closure.why)
            if conflict is None:
                raise
            return conflict
        return None


def _declare(channel: Channel, wanted: Exchange | Queue | Binding) -> Awaitable[Any]:
    match wanted:
        case Exchange(name, kind, arguments):
            return channel.exchange_declare(
                name, exchange_type=kind, durable=True, arguments=dict(arguments)
            )
        case Queue(name, arguments):
            return channel.queue_declare(name, durable=True, arguments=dict(arguments))
        case Binding(source, destination, key, "queue"):
            return channel.queue_bind(destination, source, key)
        case Binding(source, destination, key):
            return channel.exchange_bind(destination, source, key)


def _conflict(text: str) -> Conflict | None:
    match = _INEQUIVALENT.search(text)
    if match is None:
        return None
    found = {name: value.strip("'") for name, value in match.groupdict().items()}
    return Conflict(
        found["kind"], found["name"], found["argument"], found["found"], found["expected"]
    )
