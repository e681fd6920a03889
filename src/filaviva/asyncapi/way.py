"""One contract on one exchange: as a channel, its operations and its message."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from filaviva.asyncapi.schemas import ID, TRACEPARENT, reference
from filaviva.asyncapi.told import Told
from filaviva_contracts import schema_uri

Action: TypeAlias = Literal["send", "receive"]

BINDING: Final = "0.3.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where a contract's messages go, seen from Filaviva's side."""

    contract: Told
    group: Literal["events", "lifecycle", "internal"]
    exchange: str
    address: str
    actions: Sequence[Action]
    source: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    queues: Sequence[str] = ()  # where our own handlers of it read
    subject: bool = False

    @property
    def id(self) -> str:
        """Name the channel."""
        return f"{self.group}.{self.contract.name}"

    def channel(self) -> dict[str, Any]:
        """Describe the exchange and the routing key."""
        name = self.contract.name
        found: dict[str, Any] = {
            "address": self.address,
            "title": name,
            "servers": [{"$ref": "#/servers/broker"}],
            "messages": {name: {"$ref": f"#/components/messages/{name}"}},
            "bindings": {"amqp": self._exchange()},
            "tags": [{"name": self.group}],
        }
        if self.parameters:
            found["parameters"] = dict(self.parameters)
        return found

    def _exchange(self) -> dict[str, Any]:
        exchange = {"name": self.exchange, "type": "topic", "durable": True, "autoDelete": False}
        return {"is": "routingKey", "exchange": exchange, "bindingVersion": BINDING}

    def operations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Describe what Filaviva does with it."""
        for action in self.actions:
            yield f"{action}.{self.contract.name}", self._operation(action)

    def _operation(self, action: Action) -> dict[str, Any]:
        # `mandatory`: what no queue is bound for is returned to the publisher, and not lost.
        amqp = {"deliveryMode": 2, "timestamp": True, "bindingVersion": BINDING}
        amqp |= {"ack": True} if action == "receive" else {"mandatory": self.group == "internal"}
        found: dict[str, Any] = {
            "action": action,
            "channel": {"$ref": f"#/channels/{self.id}"},
            "title": self.contract.name,
            "summary": self._summary(action),
            "messages": [{"$ref": f"#/channels/{self.id}/messages/{self.contract.name}"}],
            "bindings": {"amqp": amqp},
            "tags": [{"name": self.group}],
        }
        if self.queues:
            found["x-filaviva-queues"] = list(self.queues)
        return found

    def _summary(self, action: Action) -> str:
        if self.group == "internal":
            return "Between Filaviva's own services"
        if self.group == "lifecycle":
            return "Listen to how jobs end: bind a queue of your own"
        if action == "receive":
            return "Publish it, and each handler gets one job for it"
        return "Listen to it: bind a queue of your own"

    def message(self) -> dict[str, Any]:
        """Describe the event around the contract's data."""
        name = self.contract.name
        found: dict[str, Any] = {
            "name": name,
            "title": str(self.contract.schema.get("title", name)),
            "contentType": "application/cloudevents+json",
            "correlationId": {"location": "$message.payload#/correlationid"},
            "headers": reference("AmqpHeaders"),
            "payload": self._payload(),
            "bindings": {"amqp": {"messageType": name, "bindingVersion": BINDING}},
            "tags": [{"name": self.group}],
        }
        if description := self.contract.schema.get("description"):
            found["summary"] = str(description)
        found |= self.contract.notices()
        if self.contract.example is not None:
            headers = {"traceparent": TRACEPARENT}
            found["examples"] = [{"name": name, "headers": headers, "payload": self.example()}]
        return found

    def _payload(self) -> dict[str, Any]:
        name = self.contract.name
        there: list[dict[str, Any]] = [{"required": ["data"]}]
        if self.group == "events":
            there.append({"required": ["dataref"]})
        return {
            "allOf": [reference("CloudEvent")],
            "anyOf": there,
            "properties": {"type": {"const": name}, "data": reference(name)},
        }

    def example(self) -> dict[str, Any]:
        """Give one event as it is on the wire."""
        found: dict[str, Any] = {
            "specversion": "1.0",
            "id": f"{ID}:1",
            "source": self.source,
            "type": self.contract.name,
        }
        if self.subject:
            found["subject"] = ID
        return {
            **found,
            "time": "2026-11-30T12:00:00Z",
            "datacontenttype": "application/json",
            "dataschema": schema_uri(self.contract.type, self.contract.version),
            "traceparent": TRACEPARENT,
            "correlationid": ID,
            "data": self.contract.example,
        }
