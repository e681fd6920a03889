"""Which contracts go which way: the events of others, and our own messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from filaviva.asyncapi.told import Told, of_contract
from filaviva.asyncapi.way import Action, Way
from filaviva.broker.topology import Topology
from filaviva_contracts import Contract, wire_type
from filaviva_contracts.wire import LIFECYCLE, AttemptFailed, JobDead, WakeUp

_JOB: Final = "018f0000-0000-7000-8000-000000000001"
_END: Final[Mapping[str, Any]] = {
    "jobId": _JOB,
    "type": "invoice.extract",
    "version": 2,
    "tenant": "default",
    "parentId": "018f0000-0000-7000-8000-000000000002",
    "attempt": 3,
    "costUsd": "0.004217",
    "finishedAt": "2026-11-30T12:00:00Z",
}
# As the frozen messages in contracts/golden, which are not part of the package.
_EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "job.succeeded": _END,
    "job.failed": {**_END, "errorClass": "upstream", "errorCode": "ServerError"},
    "job.canceled": _END,
    "filaviva.wakeup": {
        "jobId": _JOB,
        "epoch": 3,
        "type": "document.extract",
        "version": 2,
        "queue": "llm",
    },
    "filaviva.attempt.failed": {"jobId": _JOB, "fence": 7},
    "filaviva.job.dead": {"jobId": _JOB, "epoch": 3, "reason": "attempts_exhausted"},
}
_QUEUE = {"queue": {"description": "the queue of the job's handler"}}


def of_events(known: Sequence[Told], topology: Topology) -> Iterator[Way]:
    """Give the events: received where there are handlers, else sent by who declared them."""
    for contract in known:
        handlers = [one for one in known if _handles(one, contract)]
        if contract.event is not None or (contract.queue is not None and not handlers):
            continue
        actions: list[Action] = ["receive"] if handlers else ["send"]
        yield Way(
            contract=contract,
            group="events",
            exchange=topology.events,
            address=contract.name,
            actions=actions,
            source="/billing",
            queues=sorted({topology.work(one.queue) for one in handlers if one.queue}),
        )


def _handles(handler: Told, event: Told) -> bool:
    return handler.handled and (handler.event, handler.version) == (event.type, event.version)


def of_lifecycle(topology: Topology) -> Iterator[Way]:
    """Give what is told of jobs that have ended."""
    for contract in LIFECYCLE:
        yield Way(
            contract=replace(of_contract(contract), example=_EXAMPLES[contract.contract_type]),
            group="lifecycle",
            exchange=topology.lifecycle,
            address=wire_type(contract.contract_type, contract.contract_version),
            actions=["send"],
            source="filaviva",
            subject=True,
        )


def between_services(topology: Topology) -> Iterator[Way]:
    """Give what only our own services send and receive."""
    places: list[tuple[type[Contract], str]] = [
        (WakeUp, topology.jobs),
        (AttemptFailed, topology.retry),
        (JobDead, topology.dead),
    ]
    for contract, exchange in places:
        yield Way(
            contract=replace(of_contract(contract), example=_EXAMPLES[contract.contract_type]),
            group="internal",
            exchange=exchange,
            address="{queue}",
            actions=["send", "receive"],
            source="filaviva",
            parameters=_QUEUE,
        )
