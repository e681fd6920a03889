"""What an attempt came to: a value, decided in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

ErrorClass: TypeAlias = Literal[
    "timeout",
    "connection",
    "rate_limited",
    "upstream",
    "invalid_input",
    "invalid_output",
    "refused",
    "terminal",
    "lost",
    "canceled",
    "unexpected",
]

# The code of a job whose submitter has lost the right to it: its dead letter says `forbidden`.
KEY_NOT_ALLOWED: Final = "KeyNotAllowed"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, as it is stored and shown. `frames` are "file:function", innermost last."""

    error_class: ErrorClass
    code: str
    message: str
    frames: tuple[str, ...] = ()
    step: str | None = None


class Effect(NamedTuple):
    """A statement that commits with the completion, and the values it runs with."""

    statement: Any
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned; `result` is JSON text (None: no result)."""

    result: str | None = None
    effects: tuple[Effect, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Retry:
    """It may work later, but not sooner than `retry_after` seconds from now."""

    failure: Failure
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Dead:
    """A person has to look at it."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Canceled:
    """The work stopped because somebody asked for it."""


Outcome: TypeAlias = Done | Retry | Dead | Canceled
