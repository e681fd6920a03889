"""Upcasters: pure functions that make the data of one version what the next version expects.

They are chained, one version at a time, before the data is read by its handler. What is stored is
never changed: a replay finds the job's data as it came.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from filaviva import canonical
from filaviva.errors import ConfigurationError, UpcastFailed
from filaviva_contracts import exact
from filaviva_contracts.names import check_type, check_version

Data: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[[Data], Data]


@dataclass(frozen=True, slots=True)
class Upcaster:
    """One step: from a version of a contract to the next one."""

    type: str
    version: int
    function: Function

    @classmethod
    def of(cls, kind: str, version: int, to: int, function: Function) -> "Upcaster":
        """Check that it is one step of one function; ConfigurationError says what is not."""
        label = f"upcaster of {kind} v{version}"
        try:
            check_type(kind)
            check_version(version)
        except ValueError as wrong:
            raise ConfigurationError(f"{label}: {wrong}") from None
        if to != version + 1:
            raise ConfigurationError(
                f"{label}: found to={to}, expected to={version + 1}: longer ways are chained"
            )
        _check_function(label, function)
        return cls(kind, version, function)

    @property
    def to(self) -> int:
        """The version that it makes."""
        return self.version + 1

    @property
    def name(self) -> str:
        """What its function is called."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, data: Data) -> Data:
        """Make the next version's data; the function may change the dict that it is given.

        UpcastFailed says which step failed, and how.
        """
        try:
            made = self.function(data)
        except (Exception, SystemExit) as error:
            raise self._failed(f"raised {type(error).__name__}: {error}") from error
        if not isinstance(made, dict):
            raise self._failed(f"returned {type(made).__name__}, expected a dict")
        return made

    def _failed(self, what: str) -> UpcastFailed:
        step = f"{self.type} v{self.version} to v{self.to}"
        return UpcastFailed(f"the upcaster {self.name} ({step}) {what}")


class Upcasters:
    """The upcasters of an app: at most one for each version."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcaster] = {}

    def __iter__(self) -> Iterator[Upcaster]:
        return iter([self._steps[key] for key in sorted(self._steps)])

    def add(self, upcaster: Upcaster) -> None:
        """Take it; ConfigurationError if there is one from the same version."""
        rival = self._steps.setdefault((upcaster.type, upcaster.version), upcaster)
        if rival is not upcaster:
            raise ConfigurationError(
                f"found the upcasters {rival.name} and {upcaster.name} of {upcaster.type} "
                f"v{upcaster.version}, expected one"
            )

    def chain(self, kind: str, version: int, goals: Iterable[int]) -> tuple[Upcaster, ...] | None:
        """Give the steps from a version to the nearest of the goals; None if they lead to none."""
        wanted, steps = set(goals), []
        while version not in wanted:
            step = self._steps.get((kind, version))
            if step is None:
                return None
            steps.append(step)
            version = step.to
        return tuple(steps)

    def before(self, kind: str, goals: Iterable[int]) -> dict[int, tuple[Upcaster, ...]]:
        """Give the versions that have to be upcast to reach one of the goals, with their steps."""
        goals = set(goals)
        ways = {
            version: self.chain(kind, version, goals)
            for type_, version in sorted(self._steps)
            if type_ == kind and version not in goals
        }
        return {version: way for version, way in ways.items() if way is not None}


def upcast(payload: str, steps: Sequence[Upcaster]) -> str:
    """Upcast JSON text to JSON text; every number that no step touches stays what it was."""
    data = exact.loads(payload)
    if not isinstance(data, dict):
        raise UpcastFailed(f"found no object as data, which {steps[0].name} could upcast")
    for step in steps:
        data = step(data)
    try:
        return canonical.dumps(data)
    except (TypeError, ValueError, RecursionError) as wrong:
        raise UpcastFailed(
            f"the upcaster {steps[-1].name} returned what is no JSON: {wrong}"
        ) from None


def _check_function(label: str, function: object) -> None:
    if not callable(function):
        raise ConfigurationError(f"{label}: found {function!r}, expected a function")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(
            f"{label}: found a coroutine or generator, expected a plain function: "
            "it makes a dict of a dict, and asks nobody"
        )
    try:
        found = inspect.signature(function)
    except ValueError:  # some of Python's own functions do not say
        return
    try:
        found.bind(None)
    except TypeError:
        raise ConfigurationError(f"{label}: found {found}, expected a function of (data)") from None
