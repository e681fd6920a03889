"""The handler against a real sandbox; the context is a double that keeps checkpoints in memory."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import openai
import pytest
from filaviva import Context, InvalidOutput, Refused, Terminal
from sqlalchemy.dialects import postgresql

from invoices import app
from invoices.contracts import ExtractInvoice


class Attempt(Context):
    """One attempt of a job; a later one has what the earlier one finished."""

    def __init__(self, after: "Attempt | None" = None) -> None:
        self.job_id = after.job_id if after else uuid4()
        self.attempt = 1
        self.tenant = "default"
        self.subject = None
        self.correlation_id = "c"
        self.logger = logging.LoggerAdapter(logging.getLogger("test"))
        self.finished: dict[str, Any] = dict(after.finished) if after else {}
        self.ran: list[str] = []
        self.usages: list[Any] = []
        self.statements: list[Any] = []

    @property
    def cancel_requested(self) -> bool:
        return False

    def idempotency_key(self, name: str) -> str:
        return f"{self.job_id}:1:{name}"

    def effect(self, statement: Any, parameters: Any = None) -> None:
        self.statements.append(statement)

    async def step(self, name: str, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if name not in self.finished:
            self.ran.append(name)
            self.finished[name] = await function(*args, **kwargs)
        return self.finished[name]

    async def progress(self, done: int, total: int, message: str | None = None) -> None:
        assert 0 < done <= total

    async def record_call(self, provider: str, model: str, usage: Any, *, cost_usd=None) -> None:
        self.usages.append(usage)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        yield self

    async def execute(self, statement: Any) -> None:
        self.statements.append(statement)


@pytest.fixture(autouse=True)
async def provider(sandbox, monkeypatch) -> AsyncIterator[None]:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{sandbox.url}/v1")
    monkeypatch.setenv("INVOICES_MODEL_TIMEOUT", "20")
    app.reader.cache_clear()
    yield
    await app.reader().close()
    app.reader.cache_clear()


def job(sandbox, name: str) -> ExtractInvoice:
    return ExtractInvoice.model_validate({"documentUrl": f"{sandbox.url}/documents/{name}.xml"})


async def test_a_document_is_extracted_and_stored_once(sandbox):
    attempt = Attempt()

    invoice = await app.extract(job(sandbox, "nfe-47686"), attempt)

    assert str(invoice.totals.total) == "3251.92"
    assert attempt.ran == ["fetch", "read", "check"]
    (statement,) = attempt.statements
    compiled = statement.compile(dialect=postgresql.dialect())
    assert "INSERT INTO invoices.documents" in str(compiled)
    assert "ON CONFLICT (key) DO NOTHING" in str(compiled)
    assert compiled.params["key"] == f"{attempt.job_id}:1:store"
    assert str(compiled.params["total"]) == "3251.92"


async def test_the_call_is_recorded_as_the_ledger_charged_it(sandbox):
    attempt = Attempt()

    await app.extract(job(sandbox, "nfe-1"), attempt)

    (usage,), (call,) = attempt.usages, sandbox.calls()
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        call["inputTokens"],
        call["outputTokens"],
    )
    assert (call["jobId"], call["step"]) == (str(attempt.job_id), "read")
    assert call["idempotencyKey"] == f"{attempt.job_id}:1:read"


async def test_a_later_attempt_does_not_pay_for_a_finished_step(sandbox):
    first = Attempt()
    await app.extract(job(sandbox, "nfe-1"), first)

    second = Attempt(after=first)
    await app.extract(job(sandbox, "nfe-1"), second)

    assert second.ran == []
    assert len(sandbox.calls()) == 1


async def test_a_document_that_is_no_invoice_is_terminal_before_anything_is_paid(sandbox):
    with pytest.raises(Terminal, match=r"root is <inutNFe>.*expected one of <NFe>, <nfeProc>"):
        await app.extract(job(sandbox, "inut-101"), Attempt())

    assert sandbox.calls() == []


async def test_an_answer_outside_the_schema_is_paid_for_and_not_repeated(sandbox):
    sandbox.plan("nfe-1", "bad_output")
    attempt = Attempt()

    with pytest.raises(InvalidOutput, match=r"outside its schema: /kind Field required;.*more"):
        await app.extract(job(sandbox, "nfe-1"), attempt)

    assert len(attempt.usages) == 1
    assert attempt.statements == []


async def test_an_answer_that_does_not_add_up_is_not_stored(sandbox):
    sandbox.plan("nfe-1", "bad_total")
    attempt = Attempt()

    with pytest.raises(InvalidOutput, match=r"parts sum to 14\.00, but the total is 15\.00"):
        await app.extract(job(sandbox, "nfe-1"), attempt)

    assert attempt.statements == []


async def test_a_refusal_of_the_model_is_told_as_one():
    with pytest.raises(Refused, match="the model declined: I cannot extract"):
        await app.read("no document at all", Attempt())


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("429:2", openai.RateLimitError),
        ("500", openai.InternalServerError),
    ],
)
async def test_what_may_pass_is_left_to_the_runtime_to_classify(sandbox, fault, error):
    sandbox.plan("nfe-1", fault)

    with pytest.raises(error):
        await app.extract(job(sandbox, "nfe-1"), Attempt())


async def test_a_call_that_takes_too_long_is_left_to_the_runtime_too(sandbox, monkeypatch):
    monkeypatch.setenv("INVOICES_MODEL_TIMEOUT", "0.5")
    app.reader.cache_clear()
    sandbox.plan("nfe-1", "hang:30")

    with pytest.raises(openai.APITimeoutError):
        await app.extract(job(sandbox, "nfe-1"), Attempt())


async def test_an_address_without_a_document_keeps_its_status(sandbox):
    with pytest.raises(Exception, match="404") as missing:
        await app.extract(job(sandbox, "nothing"), Attempt())

    assert missing.value.response.status_code == 404
