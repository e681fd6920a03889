"""What the document tells of a contract, wherever it was found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from filaviva.app import App
from filaviva.registry import Registered
from filaviva.specimen import specimen
from filaviva_contracts import Contract
from filaviva_contracts.names import wire_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One version of a contract: a job if it has a queue, an event otherwise."""

    type: str
    version: int
    schema: Mapping[str, Any]
    result_schema: Mapping[str, Any] | None = None
    queue: str | None = None
    event: str | None = None  # the event that it handles
    deprecated: bool = False
    example: Any = None

    @property
    def name(self) -> str:
        """Its name on the wire."""
        return wire_type(self.type, self.version)

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
        deprecated=each.deprecated,
        example=specimen(each.schema),
    )


def of_app(app: App) -> list[Told]:
    """Tell of what an app would publish."""
    handlers = app.all_handlers()
    jobs = [
        _of(
            handler.contract,
            type=handler.job_type,
            queue=handler.queue,
            event=handler.event,
            result_schema=handler.returns.schema,
        )
        for handler in handlers
    ]
    events = {
        (handler.event, handler.version): handler.contract
        for handler in handlers
        if handler.event is not None and app.find(handler.event, handler.version) is None
    }
    return [*jobs, *(_of(contract) for _, contract in sorted(events.items()))]


def of_contract(contract: type[Contract]) -> Told:
    """Tell of one contract by itself."""
    return _of(contract)


def _of(contract: type[Contract], **more: Any) -> Told:
    schema = contract.json_schema()
    return Told(
        **{
            "type": contract.contract_type,
            "version": contract.contract_version,
            "schema": schema,
            "example": specimen(schema),
            **more,
        }
    )
