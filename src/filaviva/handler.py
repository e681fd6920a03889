"""A user's function with its contract: the border between JSON and Python."""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

from pydantic import TypeAdapter, ValidationError

from filaviva.errors import ConfigurationError, InvalidInput
from filaviva.flaws import flaws_of, sentence
from filaviva.policy import Policy
from filaviva.shape import MAX_BYTES, Shape
from filaviva.upcasting import Upcaster, upcast
from filaviva_contracts import Contract
from filaviva_contracts.names import handler_type

QUEUE = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# With the longest event type, a job type has 200 characters.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,48}", re.ASCII)
# A float keeps 15 digits of any number, and exponents of two digits.
_LONG_NUMBER = re.compile(r"[0-9.]{16}|[0-9][eE][+-]?[0-9]{3}")


@dataclass(frozen=True, slots=True)
class Handler:
    """One function that does the jobs of one contract version.

    Its job type is the contract's; a handler of an event has one of its own, since an event
    may have several handlers.
    """

    contract: type[Contract]
    job_type: str
    function: Callable[..., Any]
    queue: str
    policy: Policy
    returns: Shape
    is_async: bool
    name: str
    event: str | None = None
    upcasters: tuple[Upcaster, ...] = ()  # what older data goes through first

    @classmethod
    def of(
        cls, contract: type[Contract], function: Callable[..., Any], queue: str, policy: Policy
    ) -> "Handler":
        """Check that everything fits together; ConfigurationError says what does not."""
        _check(contract, function, queue, policy)
        return cls.ours(contract, function, queue, policy)

    @classmethod
    def ours(
        cls, contract: type[Contract], function: Callable[..., Any], queue: str, policy: Policy
    ) -> "Handler":
        """Take what is known to fit: a handler of our own, whose types `of` keeps from apps."""
        name = getattr(function, "__name__", type(function).__name__)
        return cls(
            contract=contract,
            job_type=contract.contract_type,
            function=function,
            queue=queue,
            policy=policy,
            returns=Shape.of(function),
            is_async=_is_async(function),
            name=name,
        )

    def of_event(self, name: str | None) -> "Handler":
        """Give it as one of its event's handlers; without a name it has its function's."""
        name = _qualified(self.function, self.name) if name is None else name
        event = self.contract.contract_type
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise ConfigurationError(
                f"handler of event {event}: found the name {name!r}, expected a letter, then at "
                "most 48 of a-z A-Z 0-9 . _ -; give it one: name=…"
            )
        return replace(self, job_type=handler_type(event, name), name=name, event=event)

    @property
    def version(self) -> int:
        """The version of the contract that it reads."""
        return self.contract.contract_version

    @property
    def result(self) -> TypeAdapter[Any] | None:
        """The type of the result; None if the function does not say."""
        return self.returns.adapter if self.returns.known else None

    def parse(self, payload: str) -> Contract:
        """Read a job's data from JSON text, tolerantly; InvalidInput says where it does not fit."""
        if self.upcasters:
            payload = upcast(payload, self.upcasters)
        try:
            if _LONG_NUMBER.search(payload):
                exact = json.loads(payload, parse_float=_exact)
                return self.contract.model_validate(exact)
            return self.contract.model_validate_json(payload)
        except ValidationError as invalid:
            flaws = flaws_of(invalid)
            raise InvalidInput(sentence("The data", flaws), flaws) from invalid

    def encode_result(self, value: Any, *, limit: int = MAX_BYTES) -> str | None:
        """Write a result as JSON text (None: no result); InvalidOutput if it cannot be kept."""
        return self.returns.encode(value, limit=limit)


def _qualified(function: Callable[..., Any], name: str) -> str:
    # What a function made inside another is called, without where that happened.
    return str(getattr(function, "__qualname__", name)).rpartition("<locals>.")[2]


def _exact(text: str) -> float | Decimal:
    """Keep a number that a float would change."""
    number, lossy = Decimal(text), float(text)
    return lossy if Decimal(repr(lossy)) == number else number


def _check(
    contract: type[Contract], function: Callable[..., Any], queue: str, policy: Policy
) -> None:
    if not (isinstance(contract, type) and issubclass(contract, Contract)):
        raise ConfigurationError(f"found {contract!r}, expected a Contract class")
    if contract is Contract:
        raise ConfigurationError("found Contract itself, expected a class of your own made from it")
    label = f"handler of {contract.contract_type} v{contract.contract_version}"
    if contract.contract_type.startswith("filaviva."):
        raise ConfigurationError(f"{label}: types that begin with 'filaviva.' are not free")
    if not (isinstance(queue, str) and QUEUE.fullmatch(queue)):
        raise ConfigurationError(
            f"{label}: found queue {queue!r}, expected a lower-case letter, "
            "then at most 39 of a-z 0-9 _ -"
        )
    if not isinstance(policy, Policy):
        raise ConfigurationError(f"{label}: found policy {policy!r}, expected a Policy")
    _check_function(label, contract, function)


def _check_function(label: str, contract: type[Contract], function: Callable[..., Any]) -> None:
    if not callable(function):
        raise ConfigurationError(f"{label}: found {function!r}, expected a function")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(f"{label}: found a generator, expected a function that returns")
    signature = inspect.signature(function)
    try:
        bound = signature.bind(None, None)
    except TypeError:
        raise ConfigurationError(
            f"{label}: found {signature}, expected a function of (job, context)"
        ) from None
    first = signature.parameters[next(iter(bound.arguments))].annotation
    if inspect.isclass(first) and issubclass(first, Contract) and not issubclass(contract, first):
        raise ConfigurationError(
            f"{label}: found a function of {first.__name__}, expected one of {contract.__name__}"
        )


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its kind, not whether it is there
    )
