"""What the document tells of a contract, wherever it was found."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from typing import Any

from filaviva.app import App
from filaviva.registry import Registered
from filaviva.schemas import schema_of
from filaviva.specimen import specimen
from filaviva_contracts import Contract
from filaviva_contracts.names import event_of, wire_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One version of a contract: a job if it has a queue, an event otherwise."""

    type: str
    version: int
    schema: Mapping[str, Any]
    result_schema: Mapping[str, Any] | None = None
    queue: str | None = None
    event: str | None = None  # the event that it handles
    handled: bool = True  # by a handler that is there now
    deprecated: bool = False
    sunset: date | None = None
    example: Any = None

    @property
    def name(self) -> str:
        """Its name on the wire."""
        return wire_type(self.type, self.version)

    def notices(self) -> dict[str, Any]:
        """Say that it is on its way out, and until when it is read."""
        found: dict[str, Any] = {"x-deprecated": True} if self.deprecated else {}
        return found | ({"x-sunset": self.sunset.isoformat()} if self.sunset else {})

    @property
    def ours(self) -> bool:
        """Tell whether it is between our own services."""
        return self.type.startswith("filaviva.")


def of_registry(contracts: Iterable[Registered]) -> list[Told]:
    """Tell of what setup has published."""
    return [_registered(each) for each in contracts]


@lru_cache(maxsize=1024)  # the registry keeps what did not change
def _registered(each: Registered) -> Told:
    return Told(
        type=each.type,
        version=each.version,
        schema=each.schema,
        result_schema=each.result_schema,
        queue=each.queue,
        event=each.event,
        handled=each.queue is not None and not each.deprecated,
        deprecated=each.deprecated or each.sunset is not None,
        sunset=each.sunset,
        example=specimen(each.schema),
    )


def of_app(app: App) -> list[Told]:
    """Tell of what an app would publish, as far as its code has the models."""
    jobs = list(_jobs(app))
    known = {(job.type, job.version) for job in jobs}
    events = {
        (job.event, job.version): job for job in jobs if (job.event, job.version) not in known
    }
    told = {
        (event, version): replace(job, type=event, event=None, queue=None, result_schema=None)
        for (event, version), job in events.items()
        if event is not None
    }
    declared = {key: _of(each) for key, each in app.published.items() if key not in known}
    return [*jobs, *(declared | told).values()]


def _jobs(app: App) -> Iterator[Told]:
    for kind, versions in app.reads().items():
        for version in versions:
            handler = app.find(kind, version)
            event = (event_of(kind), version)
            if handler is None or (handler.upcasters and event not in app.old_contracts):
                continue
            contract = app.old_contracts[event] if handler.upcasters else handler.contract
            yield _of(
                contract,
                type=kind,
                queue=handler.queue,
                event=handler.event,
                result_schema=handler.returns.schema,
                deprecated=event in app.sunsets,
                sunset=app.sunsets.get(event),
            )


def of_contract(contract: type[Contract]) -> Told:
    """Tell of one contract by itself."""
    return _of(contract)


def _of(contract: type[Contract], **more: Any) -> Told:
    schema = schema_of(contract)
    return Told(
        **{
            "type": contract.contract_type,
            "version": contract.contract_version,
            "schema": schema,
            "example": specimen(schema),
            **more,
        }
    )
