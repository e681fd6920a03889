"""The contracts that code defines: of an app's handlers, and of modules that only define them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias

from filaviva.app import App
from filaviva.errors import ConfigurationError
from filaviva.handler import Handler
from filaviva.schemas import schema_of
from filaviva_contracts import Contract

Part: TypeAlias = Literal["data", "result"]
Key: TypeAlias = tuple[str, int]  # a contract's type and version
PARTS: Final[tuple[Part, ...]] = ("data", "result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """One version of a contract as the code has it.

    `edge`: what is sent passes our HTTP edge, which is strict. Results and our own messages do not.
    """

    contract: type[Contract]
    schema: dict[str, Any]
    result_schema: dict[str, Any] | None = None
    edge: bool = True

    @property
    def key(self) -> Key:
        return self.contract.contract_type, self.contract.contract_version

    def part(self, part: Part) -> dict[str, Any] | None:
        """Give the schema of the data, or of the result."""
        return self.schema if part == "data" else self.result_schema

    def has_edge(self, part: Part) -> bool:
        """Tell whether this part of it passes the strict edge."""
        return self.edge and part == "data"


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything defined, and everything that can be read: as it is, or upcast.

    `upcast_results`: what those are answered who sent a version that is upcast.
    """

    defined: Mapping[Key, Defined]
    readers: Mapping[Key, Callable[[str], Contract]]
    result_readers: Mapping[Key, Callable[[str], Any]]
    upcast_results: Mapping[Key, dict[str, Any] | None]

    def newest(self, contract_type: str) -> Defined | None:
        """Find the newest version of a type."""
        versions = [key for key in self.defined if key[0] == contract_type]
        return self.defined[max(versions)] if versions else None


def catalog(app: App | None, modules: Iterable[str] = ()) -> Catalog:
    """Collect what an app handles and what modules define."""
    defined: dict[Key, Defined] = {}
    readers: dict[Key, Callable[[str], Contract]] = {}
    results: dict[Key, Callable[[str], Any]] = {}
    for contract in _of_modules(modules):
        _refuse_twin(contract, defined)
        one = Defined(contract=contract, schema=schema_of(contract), edge=False)
        defined[one.key] = one
        readers[one.key] = contract.model_validate_json
    if app is not None:
        for contract in (*app.old_contracts.values(), *app.published.values()):
            _refuse_twin(contract, defined)
            one = Defined(contract=contract, schema=schema_of(contract))
            defined[one.key] = one
        readers |= {key: each.model_validate_json for key, each in app.published.items()}
        for handler in app.all_handlers():
            _refuse_twin(handler.contract, defined)
            one = _of_handler(handler)
            defined[one.key] = one
            if one.result_schema is not None:
                results[one.key] = handler.returns.decode
        readers |= {key: handler.parse for key, handler in _reading(app)}
    return Catalog(defined, readers, results, {} if app is None else _upcast_results(app))


def _refuse_twin(contract: type[Contract], defined: Mapping[Key, Defined]) -> None:
    rival = defined.get((contract.contract_type, contract.contract_version))
    if rival is not None and rival.contract is not contract:
        raise ConfigurationError(
            f"found {_where(rival.contract)} and {_where(contract)}, both "
            f"{contract.contract_type} v{contract.contract_version}, expected one class for it"
        )


def _where(contract: type[Contract]) -> str:
    return f"{contract.__module__}.{contract.__qualname__}"


def _of_handler(handler: Handler) -> Defined:
    # What the handlers of an event return is nobody's contract: nobody has asked for it (0019).
    result = handler.returns.schema if handler.event is None else None
    return Defined(
        contract=handler.contract, schema=schema_of(handler.contract), result_schema=result
    )


def _reading(app: App) -> Iterator[tuple[Key, Handler]]:
    """Find a handler for each version that is read."""
    for job_type, versions in app.reads().items():
        for version in versions:
            handler = app.find(job_type, version)
            if handler is not None:
                yield (handler.contract.contract_type, version), handler


def _upcast_results(app: App) -> dict[Key, dict[str, Any] | None]:
    return {
        key: handler.returns.schema
        for key, handler in _reading(app)
        if handler.upcasters and handler.event is None
    }


def _of_modules(names: Iterable[str]) -> list[type[Contract]]:
    found = [contract for name in names for contract in _of_module(_imported(name))]
    return sorted(set(found), key=lambda each: (each.contract_type, each.contract_version))


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"found the module {name!r}, but there is none of this name ({missing}); "
            "expected an installed module that defines contracts"
        ) from None


def _of_module(module: ModuleType) -> list[type[Contract]]:
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Contract) and value is not Contract
    ]
    if not found:
        raise ConfigurationError(
            f"found no contract in {module.__name__}, expected classes made from Contract"
        )
    return found
