"""The attempt's context for a handler that does not run on the event loop."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Executable
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva_worker.context import LiveContext

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """What a statement gave, fetched: rows as plain tuples, and how many it touched."""

    rows: tuple[tuple[Any, ...], ...]
    rowcount: int

    def all(self) -> tuple[tuple[Any, ...], ...]:
        """Give all rows."""
        return self.rows

    def first(self) -> tuple[Any, ...] | None:
        """Give the first row; None if there is none."""
        return self.rows[0] if self.rows else None

    def scalar(self) -> Any:
        """Give the first column of the first row; None if there is none."""
        return self.rows[0][0] if self.rows else None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a context knows without asking."""

    job_id: UUID
    attempt: int
    revision: int
    tenant: str
    subject: str | None
    correlation_id: str


class Remote:
    """Execute on the loop what a blocking context asks for, one call after another."""

    def __init__(self, context: LiveContext) -> None:
        self._context = context
        self._open = AsyncExitStack()
        self._transaction: AsyncConnection | None = None

    async def begin_step(self, name: str, tool: str | None) -> str | None:
        """Find a finished step's output, or record that it runs."""
        saved = await self._context.begin_step(name, tool=tool)
        self._context.remote_step = name if saved is None else None
        return saved

    async def finish_step(
        self, name: str, state: Literal["succeeded", "failed"], output: str | None
    ) -> None:
        """Store what a step came to."""
        await self._context.finish_step(name, state, output)
        self._context.remote_step = None

    async def progress(self, done: int, total: int, message: str | None) -> None:
        """Show how far the work is."""
        await self._context.progress(done, total, message)

    async def record_call(
        self, provider: str, model: str, usage: object, cost_usd: Decimal | None
    ) -> None:
        """Record a model call."""
        await self._context.record_call(provider, model, usage, cost_usd=cost_usd)

    async def effect(self, statement: Executable, parameters: Mapping[str, Any] | None) -> None:
        """Add a statement to the completion."""
        self._context.effect(statement, parameters)

    async def cancel_requested(self) -> bool:
        """Tell whether the work should stop."""
        return self._context.cancel_requested

    async def begin(self) -> None:
        """Open the transaction."""
        self._transaction = await self._open.enter_async_context(self._context.transaction())

    async def execute(self, statement: Executable, parameters: Any) -> Rows:
        """Execute a statement in the open transaction."""
        if self._transaction is None:
            raise RuntimeError("no transaction is open; use `with ctx.transaction() as db:`")
        result = await self._transaction.execute(statement, parameters)
        rows = tuple(tuple(row) for row in result.all()) if result.returns_rows else ()
        return Rows(rows, getattr(result, "rowcount", -1))

    async def commit(self) -> None:
        """Commit, if the lease is still ours."""
        self._transaction = None
        await self._open.aclose()

    async def rollback(self) -> None:
        """Undo what the open transaction did."""
        if self._transaction is not None:
            self._transaction = None
            await self._open.__aexit__(RolledBack, RolledBack(), None)


class RolledBack(Exception):
    """Ends the transaction's context without a commit."""
