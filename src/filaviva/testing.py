"""Run one handler in memory: what it returns, records and raises, in milliseconds.

This is no Filaviva: nothing is stored, nobody retries, no lease can be lost, and there is no
database. Whether effects happen once is shown on the real stack only.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID, uuid4

from filaviva.app import App
from filaviva.classification import classify
from filaviva.context import Context, SyncContext
from filaviva.errors import ConfigurationError
from filaviva.handler import Handler
from filaviva.outcome import Done, Effect, Outcome
from filaviva.policy import Policy
from filaviva.shape import Shape
from filaviva_contracts import Contract


class NoDatabase(ConfigurationError):
    """The handler wants a transaction: run it on the real stack."""


@dataclass(frozen=True, slots=True)
class Call:
    """A model call as the handler recorded it."""

    provider: str
    model: str
    usage: object
    cost_usd: Decimal | None


@dataclass(slots=True)
class Recorded:
    """What a handler did; give it to a second run and finished steps are not run again."""

    steps: dict[str, str | None] = field(default_factory=dict)
    """The output of each finished step, as JSON text."""
    effects: list[Effect] = field(default_factory=list)
    """The statements that would commit with the completion."""
    progress: list[tuple[int, int, str | None]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    job_id: UUID = field(default_factory=uuid4)
    attempt: int = 0
    failed_step: str | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt in memory. `value` is the result, read back as the handler's result type."""

    outcome: Outcome
    value: Any
    recorded: Recorded


async def run_handler(
    target: App | Callable[..., Any], job: Contract, *, recorded: Recorded | None = None
) -> Ran:
    """Run a handler, or the one of an app, once; its data and result pass through JSON."""
    handler = _handler(target, job)
    record = recorded or Recorded()
    # What a failed attempt wanted to commit is gone with it.
    record.effects, record.failed_step, record.attempt = [], None, record.attempt + 1
    try:
        message = handler.parse(job.model_dump_json(by_alias=True))
        async with asyncio.timeout(handler.policy.seconds(is_async=handler.is_async)):
            value = await _called(handler, message, record)
        result = handler.encode_result(value)
    except NoDatabase:
        raise
    except Exception as error:  # noqa: BLE001 - the border to code that is not ours
        return Ran(classify(error, handler.policy, step=record.failed_step), None, record)
    return Ran(Done(result, tuple(record.effects)), handler.returns.decode(result), record)


def _handler(target: App | Callable[..., Any], job: Contract) -> Handler:
    if not isinstance(target, App):
        return Handler.of(type(job), target, "default", Policy())
    handler = target.find(job.contract_type, job.contract_version)
    if handler is None:
        found = ", ".join(sorted(target.handlers)) or "none"
        wanted = f"{job.contract_type} v{job.contract_version}"
        raise ConfigurationError(f"{target}: found handlers of {found}, expected one of {wanted}")
    return handler


async def _called(handler: Handler, message: Contract, record: Recorded) -> Any:
    if handler.is_async:
        return await handler.function(message, _MemoryContext(record))
    return await asyncio.to_thread(handler.function, message, _BlockingMemoryContext(record))


class _Memory:
    """What both contexts do alike."""

    tenant = "default"
    subject: str | None = None
    correlation_id = "in-memory"
    logger = logging.getLogger("filaviva.job")
    cancel_requested = False

    def __init__(self, record: Recorded) -> None:
        self.record = record
        self.job_id = record.job_id
        self.attempt = record.attempt

    def idempotency_key(self, name: str) -> str:
        return f"{self.job_id}:1:{name}"

    def effect(self, statement: Any, parameters: Mapping[str, Any] | None = None) -> None:
        self.record.effects.append(Effect(statement, parameters))

    def transaction(self) -> NoReturn:
        raise NoDatabase("in memory there is no database: run this on the real stack")

    @contextmanager
    def checkpoint(self, name: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.record.failed_step = name
            raise


class _MemoryContext(_Memory, Context):
    async def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kw: Any) -> Any:
        shape = Shape.of(function)
        if name in self.record.steps:
            return shape.decode(self.record.steps[name])
        with self.checkpoint(name):
            value = function(*args, **kw)
            if inspect.isawaitable(value):
                value = await value
            self.record.steps[name] = shape.encode(value)
        return value

    async def progress(self, done: int, total: int, message: str | None = None) -> None:
        self.record.progress.append((done, total, message))

    async def record_call(
        self, provider: str, model: str, usage: object, *, cost_usd: Decimal | None = None
    ) -> None:
        self.record.calls.append(Call(provider, model, usage, cost_usd))


class _BlockingMemoryContext(_Memory, SyncContext):
    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kw: Any) -> Any:
        shape = Shape.of(function)
        if name in self.record.steps:
            return shape.decode(self.record.steps[name])
        with self.checkpoint(name):
            value = function(*args, **kw)
            self.record.steps[name] = shape.encode(value)
        return value

    def progress(self, done: int, total: int, message: str | None = None) -> None:
        self.record.progress.append((done, total, message))

    def record_call(
        self, provider: str, model: str, usage: object, *, cost_usd: Decimal | None = None
    ) -> None:
        self.record.calls.append(Call(provider, model, usage, cost_usd))
