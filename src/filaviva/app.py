"""An application: its handlers, and how to find it."""

import copy
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from filaviva.errors import ConfigurationError
from filaviva.handler import Handler
from filaviva.policy import Policy
from filaviva.upcasting import Function, Upcaster, Upcasters
from filaviva_contracts import Contract
from filaviva_contracts.names import event_of

if TYPE_CHECKING:  # SQLAlchemy takes longer to import than all of the SDK
    from sqlalchemy import MetaData

F = TypeVar("F", bound=Callable[..., Any])
U = TypeVar("U", bound=Function)
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class App:
    """The handlers of one application, by job type and version.

    With `lifecycle` other services are told on `filaviva.lifecycle` how all its jobs end.
    """

    def __init__(
        self, name: str, *, tables: "MetaData | None" = None, lifecycle: bool = False
    ) -> None:
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise ConfigurationError(
                f"App: found the name {name!r}, expected a lower-case letter, "
                "then at most 39 of a-z 0-9 _ -"
            )
        self.name = name
        self.tables = tables
        self.lifecycle = lifecycle
        self._handlers: dict[str, dict[int, Handler]] = {}
        self._upcasters = Upcasters()
        self._old: dict[tuple[str, int], type[Contract]] = {}
        self._published: dict[tuple[str, int], type[Contract]] = {}
        self._sunsets: dict[tuple[str, int], date] = {}

    def __repr__(self) -> str:
        return f"App({self.name!r})"

    @property
    def handlers(self) -> Mapping[str, Mapping[int, Handler]]:
        """Every handler: job type, then version."""
        return MappingProxyType(self._handlers)

    @property
    def queues(self) -> tuple[str, ...]:
        """Every queue that a handler reads."""
        return tuple(sorted({handler.queue for handler in self.all_handlers()}))

    def all_handlers(self) -> list[Handler]:
        """Every handler in one list, by type and version."""
        return [
            versions[version]
            for _, versions in sorted(self._handlers.items())
            for version in sorted(versions)
        ]

    @property
    def upcasters(self) -> tuple[Upcaster, ...]:
        """Every upcaster, by type and version."""
        return tuple(self._upcasters)

    @property
    def old_contracts(self) -> Mapping[tuple[str, int], type[Contract]]:
        """The contracts, by type and version, that upcasters were registered with."""
        return MappingProxyType(self._old)

    @property
    def published(self) -> Mapping[tuple[str, int], type[Contract]]:
        """The events, by type and version, that are declared for others to listen to."""
        return MappingProxyType(self._published)

    @property
    def sunsets(self) -> Mapping[tuple[str, int], date]:
        """The versions that are deprecated, with the day until which they are read."""
        return MappingProxyType(self._sunsets)

    def find(self, job_type: str, version: int) -> Handler | None:
        """Find the handler of a job type; None if none reads it. An old version's has `upcasters`.

        Of several that an old version may be upcast for, the nearest.
        """
        versions = self._handlers.get(job_type)
        if versions is None or version in versions:
            return None if versions is None else versions[version]
        steps = self._upcasters.chain(event_of(job_type), version, versions)
        return None if steps is None else replace(versions[steps[-1].to], upcasters=steps)

    def reads(self) -> dict[str, tuple[int, ...]]:
        """Give the versions of each job type that it reads: as they are, or upcast."""
        return {
            kind: tuple(sorted({*versions, *self._upcasters.before(event_of(kind), versions)}))
            for kind, versions in sorted(self._handlers.items())
        }

    def handler(
        self, contract: type[Contract], *, queue: str = "default", policy: Policy | None = None
    ) -> Callable[[F], F]:
        """Register the function below for a contract; it stays callable as it is."""

        def register(function: F) -> F:
            self.add(Handler.of(contract, function, queue, Policy() if policy is None else policy))
            return function

        return register

    def on_event(
        self,
        event: type[Contract],
        *,
        queue: str = "default",
        policy: Policy | None = None,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Register the function below for an event: each event becomes one job for it.

        An event may have several handlers. Each is known by its `name` (default: the function's),
        which an event that was published before must find again: give one before you rename.
        """

        def register(function: F) -> F:
            bounds = Policy() if policy is None else policy
            self.add(Handler.of(event, function, queue, bounds).of_event(name))
            return function

        return register

    def publishes(self, *events: type[Contract]) -> None:
        """Declare events that this app's services publish, whoever handles them.

        Their contracts are in the registry then, for other apps and languages; `POST /v1/events`
        takes them.
        """
        for event in events:
            self._published[event.contract_type, event.contract_version] = event

    def upcaster(
        self, contract: str | type[Contract], version: int | None = None, *, to: int
    ) -> Callable[[U], U]:
        """Register the pure function below: the data of a version in, that of the next one out.

        `@app.upcaster(InvoiceV1, to=2)`, or by name: `@app.upcaster("invoice.extract", 1, to=2)`.
        With the contract the old version can be submitted where it was never published before.
        """

        def register(function: U) -> U:
            kind, number = _named(contract, version)
            self._upcasters.add(Upcaster.of(kind, number, to, function))
            if not isinstance(contract, str):
                self._old[kind, number] = contract
            return function

        return register

    def deprecate(
        self, contract: str | type[Contract], version: int | None = None, *, sunset: date
    ) -> None:
        """Announce that a version is read until that day; who submits it is told.

        Nothing is refused when the day has come: only taking out its handler or upcaster ends it.
        """
        kind, number = _named(contract, version)
        if not isinstance(sunset, date) or isinstance(sunset, datetime):
            raise ConfigurationError(
                f"deprecation of {kind} v{number}: found {sunset!r}, expected a date"
            )
        self._sunsets[kind, number] = sunset

    def check(self) -> None:
        """Make sure that upcasters lead to handlers; ConfigurationError names what lacks."""
        for kind, version in self._sunsets:
            if not any(
                event_of(read) == kind and version in versions
                for read, versions in self.reads().items()
            ):
                raise ConfigurationError(
                    f"app {self.name!r}: found a deprecation of {kind} v{version}, which it does "
                    "not read; expected a version with a handler or an upcaster"
                )
        for step in self._upcasters:
            goals = [
                version
                for kind, versions in self._handlers.items()
                if event_of(kind) == step.type
                for version in versions
            ]
            if self._upcasters.chain(step.type, step.to, goals) is None:
                raise ConfigurationError(
                    f"app {self.name!r}: found the upcaster {step.name} of {step.type} "
                    f"v{step.version} to v{step.to}, which nothing reads; expected a handler of "
                    f"v{step.to}, or an upcaster from v{step.to} on"
                )

    def add(self, handler: Handler) -> None:
        """Take a handler that is made already; ConfigurationError if it has a rival."""
        kind, version = handler.job_type, handler.version
        versions = self._handlers.setdefault(kind, {})
        if version in versions:
            expected = "one handler" if handler.event is None else "another name for one of them"
            raise ConfigurationError(
                f"app {self.name!r}: found {versions[version].name} and {handler.name} "
                f"for {kind} v{version}, expected {expected}"
            )
        if self.lifecycle:
            handler = replace(handler, policy=replace(handler.policy, lifecycle=True))
        versions[version] = handler

    def widened(self, handler: Handler) -> "App":
        """Give an app that has this handler, just as it is, beside all that this one has."""
        wider = copy.copy(self)
        wider.lifecycle = False  # said of the app's own jobs, whose handlers know it already
        handlers = {kind: dict(versions) for kind, versions in self._handlers.items()}
        wider._handlers = handlers  # noqa: SLF001 - of our own class
        wider.add(handler)
        return wider


def _named(contract: str | type[Contract], version: int | None) -> tuple[str, int]:
    if isinstance(contract, str):
        if version is None:
            raise ConfigurationError(
                f"{contract}: found no version, expected one beside the type: "
                f"({contract!r}, 1, …), or the contract's class alone"
            )
        return contract, version
    if not (isinstance(contract, type) and issubclass(contract, Contract)):
        raise ConfigurationError(f"found {contract!r}, expected a contract's type or its class")
    if version not in (None, contract.contract_version):
        raise ConfigurationError(
            f"{contract.__name__}: found version {version}, "
            f"expected {contract.contract_version}, or nothing"
        )
    return contract.contract_type, contract.contract_version


def load_app(path: str) -> App:
    """Import "package.module:attribute" and make sure that it is an App."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ConfigurationError(f"FILAVIVA_APP: found {path!r}, expected package.module:attribute")
    here = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # an installed console script does not look where it is started
    found = _attribute(path, _module(path, module_name), attribute)
    if not isinstance(found, App):
        raise ConfigurationError(
            f"FILAVIVA_APP: {path} is found to be a {type(found).__name__}, expected an App"
        )
    found.check()
    return found


def _module(path: str, name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise  # the app's own code imports something that is not there
        raise ConfigurationError(
            f"FILAVIVA_APP: found {path!r}, but there is no module {missing.name!r}; "
            "expected an installed package, or one in the present folder"
        ) from None


def _attribute(path: str, module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            apps = sorted(key for key, value in vars(module).items() if isinstance(value, App))
            known = ", ".join(apps) or "none"
            raise ConfigurationError(
                f"FILAVIVA_APP: found {path!r}, but {module.__name__} has no {part!r}; "
                f"expected the name of an App (it has: {known})"
            )
        found = getattr(found, part)
    return found
