"""What a handler can do while it runs."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

if TYPE_CHECKING:  # SQLAlchemy takes longer to import than all of the SDK
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.sql import Executable

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of one model call, each counted once: cached input is not in `input_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class Running(ABC):
    """The facts about an attempt that both kinds of context have."""

    job_id: UUID
    attempt: int
    tenant: str
    subject: str | None
    correlation_id: str
    logger: Any  # structlog's: the job's id, type and attempt stand on every line

    @property
    @abstractmethod
    def cancel_requested(self) -> bool:
        """True once somebody asked for the job to stop; no further step starts then."""

    @abstractmethod
    def idempotency_key(self, name: str) -> str:
        """Give a key that stays the same over all attempts with the same input."""

    @abstractmethod
    def effect(self, statement: "Executable", parameters: Mapping[str, Any] | None = None) -> None:
        """Add a statement that commits together with the job's completion, or not at all.

        A statement made once and given its values as `parameters` costs least: the effects of
        many jobs are then one statement with many rows.
        TypeError for one that begins or ends a transaction: it commits with other jobs' too.
        """


class Context(Running):
    """What an async handler is given."""

    @overload
    async def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @abstractmethod
    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a function once per job and input; a later attempt gets what it returned."""

    @abstractmethod
    async def progress(self, done: int, total: int, message: str | None = None) -> None:
        """Show how far the job has come."""

    @abstractmethod
    async def record_call(
        self, provider: str, model: str, usage: object, *, cost_usd: Decimal | None = None
    ) -> None:
        """Record a paid model call: a `Usage`, or the usage object of the provider's library."""

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager["AsyncConnection"]:
        """Open a transaction that commits only if the lease is still ours."""


class Transaction(Protocol):
    """A transaction of a sync handler."""

    def execute(self, statement: "Executable", parameters: Any = None) -> Any:
        """Run a statement and return its result, rows fetched."""


class SyncContext(Running):
    """What a sync handler is given: the same names, blocking."""

    @abstractmethod
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function once per job and input; a later attempt gets what it returned."""

    @abstractmethod
    def progress(self, done: int, total: int, message: str | None = None) -> None:
        """Show how far the job has come."""

    @abstractmethod
    def record_call(
        self, provider: str, model: str, usage: object, *, cost_usd: Decimal | None = None
    ) -> None:
        """Record a paid model call: a `Usage`, or the usage object of the provider's library."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that commits only if the lease is still ours."""
