"""Contracts as JSON: one shape for HTTP and the command line."""

from typing import Any

from filaviva.operations.figures import moment
from filaviva.registry import Registered
from filaviva.specimen import specimen


def contract(found: Registered) -> dict[str, Any]:
    """Give a version of a contract without its schemas."""
    return {
        "type": found.type,
        "version": found.version,
        "app": found.app,
        "queue": found.queue,
        "event": found.event,
        "deprecated": found.deprecated or found.sunset is not None,
        "deprecatedAt": moment(found.deprecated_at or found.announced_at),
        "sunset": None if found.sunset is None else found.sunset.isoformat(),
        "readAs": found.version if found.read_as is None else found.read_as,
        "handled": found.queue is not None and not found.deprecated,
        "policy": _policy(found),
        "links": {"self": f"/v1/contracts/{found.type}/{found.version}"},
    }


def contract_in_full(found: Registered) -> dict[str, Any]:
    """Give a version of a contract, with what a message must look like."""
    return {
        **contract(found),
        "schema": found.schema,
        "resultSchema": found.result_schema,
        "examples": found.examples or _made_up(found),
    }


def _made_up(found: Registered) -> list[Any]:
    # Where nobody has written one, what fits says more than nothing.
    example = specimen(found.schema)
    return [] if example is None else [example]


def _policy(found: Registered) -> dict[str, Any]:
    return {
        "maxAttempts": found.policy.max_attempts,
        "base": found.policy.base,
        "cap": found.policy.cap,
        "jitter": found.policy.jitter,
        "timeout": found.policy.timeout,
    }
