"""Write the declarations as the definitions file that a broker loads when it boots."""

from typing import Any

from filaviva.broker.topology import Binding, Declarations, Exchange, Queue


def export(declarations: Declarations, vhost: str = "/") -> dict[str, Any]:
    """Give the declarations as `load_definitions` and the management API's import take them."""
    return {
        "vhosts": [{"name": vhost}],
        "exchanges": [_exchange(exchange, vhost) for exchange in declarations.exchanges],
        "queues": [_queue(queue, vhost) for queue in declarations.queues],
        "bindings": [_binding(binding, vhost) for binding in declarations.bindings],
    }


def _exchange(exchange: Exchange, vhost: str) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.kind,
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": dict(exchange.arguments),
    }


def _queue(queue: Queue, vhost: str) -> dict[str, Any]:
    return {
        "name": queue.name,
        "vhost": vhost,
        "durable": True,
        "auto_delete": False,
        "arguments": dict(queue.arguments),
    }


def _binding(binding: Binding, vhost: str) -> dict[str, Any]:
    return {
        "source": binding.source,
        "vhost": vhost,
        "destination": binding.destination,
        "destination_type": binding.destination_type,
        "routing_key": binding.routing_key,
        "arguments": {},
    }
