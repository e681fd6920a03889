"""The blocking context: the same names as the async one, each a call to the worker's loop."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import structlog
from sqlalchemy import Executable

from filaviva.context import SyncContext
from filaviva_worker.context import idempotency_key, output_of
from filaviva_worker.remote import Call, Facts, Rows


class BlockingContext(SyncContext):
    """The context of one attempt, seen from a thread or a process."""

    def __init__(self, facts: Facts, call: Call, *, max_result_bytes: int) -> None:
        self._facts = facts
        self._call = call
        self._limit = max_result_bytes
        self.job_id = facts.job_id
        self.attempt = facts.attempt
        self.tenant = facts.tenant
        self.subject = facts.subject
        self.correlation_id = facts.correlation_id
        self.failed_step: str | None = None
        self.logger = structlog.get_logger("filaviva.job").bind(
            job_id=str(facts.job_id), attempt=facts.attempt, correlation_id=facts.correlation_id
        )

    @property
    def cancel_requested(self) -> bool:
        return bool(self._call("cancel_requested"))

    def idempotency_key(self, name: str) -> str:
        return idempotency_key(self._facts.job_id, self._facts.revision, name)

    def effect(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> None:
        self._call("effect", statement, parameters)

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        output = output_of(function)
        saved = self._call("begin_step", name, getattr(function, "__name__", None))
        if saved is not None:
            return output.adapter.validate_json(saved)
        try:
            value = function(*args, **kwargs)
            text = output.encode(value, limit=self._limit)
        except BaseException:
            self.failed_step = name
            self._call("finish_step", name, "failed", None)
            raise
        self._call("finish_step", name, "succeeded", text)
        return value

    def progress(self, done: int, total: int, message: str | None = None) -> None:
        self._call("progress", done, total, message)

    def record_call(
        self, provider: str, model: str, usage: object, *, cost_usd: Decimal | None = None
    ) -> None:
        self._call("record_call", provider, model, usage, cost_usd)

    @contextmanager
    def transaction(self) -> Iterator["BlockingTransaction"]:
        self._call("begin")
        try:
            yield BlockingTransaction(self._call)
        except BaseException:
            self._call("rollback")
            raise
        self._call("commit")


class BlockingTransaction:
    """A transaction on the worker's loop."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def execute(self, statement: Executable, parameters: Any = None) -> Rows:
        """Execute a statement and return its result, rows fetched."""
        rows: Rows = self._call("execute", statement, parameters)
        return rows
