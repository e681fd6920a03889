"""Every name that exists on the broker, and nowhere else."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from filaviva.broker import cascade

# A message that comes back more often than this takes its workers down: it goes to the dead
# letters. Limit N means N+1 deliveries.
DELIVERY_LIMIT = 20
# "Never" for every version: 3.10 takes -1 at its word and drops a message at its first return.
NO_DELIVERY_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    kind: Literal["topic", "fanout"] = "topic"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable quorum queue."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Binding:
    """Messages of `source` with this routing key go to `destination`."""

    source: str
    destination: str
    routing_key: str
    destination_type: Literal["queue", "exchange"] = "queue"


@dataclass(frozen=True, slots=True)
class Declarations:
    """All that has to be on the broker, in an order in which it can be declared."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]
    gone: tuple[Binding, ...] = ()  # to be removed


@dataclass(frozen=True, slots=True)
class Topology:
    """The names under one prefix, and what has to be declared for them."""

    prefix: str = "filaviva."

    @property
    def jobs(self) -> str:
        """The exchange of wake-ups; routing key = the job's queue."""
        return f"{self.prefix}jobs"

    @property
    def events(self) -> str:
        """The exchange of other services' events; routing key = `type.vN`."""
        return f"{self.prefix}events"

    @property
    def lifecycle(self) -> str:
        """The exchange on which we tell what became of jobs; anybody or nobody listens."""
        return f"{self.prefix}lifecycle"

    @property
    def retry(self) -> str:
        """The exchange of failed attempts."""
        return f"{self.prefix}retry"

    @property
    def dead(self) -> str:
        """The exchange of dead letters."""
        return f"{self.prefix}dead"

    @property
    def unroutable(self) -> str:
        """The exchange, and the queue, of messages that no binding wanted."""
        return f"{self.prefix}unroutable"

    @property
    def retry_requests(self) -> str:
        """The retry-scheduler's queue."""
        return f"{self.prefix}retry.requests"

    @property
    def dead_letters(self) -> str:
        """The dlq-handler's queue."""
        return f"{self.prefix}dead.letters"

    @property
    def delivery(self) -> str:
        """The exchange to which the cascade delivers what has waited long enough."""
        return f"{self.prefix}delay.deliver"

    def work(self, queue: str) -> str:
        """The broker's queue of a handler queue."""
        return f"{self.prefix}work.{queue}"

    def level(self, number: int) -> str:
        """The exchange, and the queue, of one level of the cascade."""
        return f"{self.prefix}delay.l{number:02}"

    def delay_route(self, pause_seconds: float, queue: str) -> tuple[str, str]:
        """Give exchange and routing key that bring a message to the queue after the pause.

        A pause beyond the cascade's horizon becomes the horizon.
        """
        pause = cascade.ticks(pause_seconds)
        if pause == 0:
            return self.jobs, queue
        return self.level(cascade.entry_level(pause)), cascade.routing_key(pause, queue)

    def declarations(
        self,
        queues: Sequence[str],
        events: Iterable[tuple[str, str]] = (),
        gone: Iterable[tuple[str, str]] = (),
    ) -> Declarations:
        """Give all that these handler queues need.

        `events` are (routing key, queue), as are those that are `gone`: nobody handles them there.
        """
        return Declarations(
            exchanges=(*self._exchanges(), *self._level_exchanges()),
            queues=(*self._own_queues(), *self._work_queues(queues), *self._level_queues()),
            bindings=(
                *self._own_bindings(),
                *self._work_bindings(queues),
                *self._event_bindings(events),
                *self._level_bindings(),
            ),
            gone=tuple(self._event_bindings(gone)),
        )

    def _exchanges(self) -> Iterator[Exchange]:
        # An alternate exchange on jobs, retry or dead would defeat `mandatory`: an unroutable
        # message would be confirmed as routed and its outbox row deleted.
        alternate = {"alternate-exchange": self.unroutable}
        yield Exchange(self.unroutable, "fanout")
        yield Exchange(self.jobs)
        yield Exchange(self.events, arguments=alternate)
        yield Exchange(self.lifecycle)
        yield Exchange(self.retry)
        yield Exchange(self.dead)
        # Without it, 32 messages for a queue that is gone would block their whole level.
        yield Exchange(self.delivery, arguments=alternate)

    def _level_exchanges(self) -> Iterator[Exchange]:
        return (Exchange(self.level(number)) for number in range(cascade.LEVELS))

    def _own_queues(self) -> Iterator[Queue]:
        # They have no dead-letter exchange: at a limit (20 by default from 4.0 on) the broker
        # would drop the message.
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": NO_DELIVERY_LIMIT}
        for name in (self.retry_requests, self.dead_letters, self.unroutable):
            yield Queue(name, arguments)

    def _work_queues(self, queues: Sequence[str]) -> Iterator[Queue]:
        limit = {"x-delivery-limit": DELIVERY_LIMIT}
        return (Queue(self.work(queue), _forwarding(self.dead) | limit) for queue in queues)

    def _level_queues(self) -> Iterator[Queue]:
        for number in range(cascade.LEVELS):
            ttl = {"x-message-ttl": cascade.ttl_milliseconds(number)}
            yield Queue(self.level(number), _forwarding(self._below(number)) | ttl)

    def _own_bindings(self) -> Iterator[Binding]:
        yield Binding(self.retry, self.retry_requests, "#")
        yield Binding(self.dead, self.dead_letters, "#")
        yield Binding(self.unroutable, self.unroutable, "")

    def _work_bindings(self, queues: Sequence[str]) -> Iterator[Binding]:
        for queue in queues:
            yield Binding(self.jobs, self.work(queue), queue)
            yield Binding(self.delivery, self.work(queue), f"#.{queue}")

    def _event_bindings(self, events: Iterable[tuple[str, str]]) -> Iterator[Binding]:
        return (Binding(self.events, self.work(queue), key) for key, queue in events)

    def _level_bindings(self) -> Iterator[Binding]:
        for number in range(cascade.LEVELS):
            here, below = self.level(number), self._below(number)
            yield Binding(here, here, cascade.held_at(number))
            yield Binding(here, below, cascade.passing(number), "exchange")

    def _below(self, number: int) -> str:
        return self.level(number - 1) if number else self.delivery


def _forwarding(exchange: str) -> dict[str, Any]:
    # At-least-once needs all of these; with another overflow the broker falls back to
    # at-most-once without a word.
    return {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
