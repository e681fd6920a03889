"""The sandbox over loopback, called with the same library as a real provider."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from uuid import uuid4

import openai
import pytest

from invoices import documents
from invoices.model_call import Origin, Reader, invoice_in
from invoices.parsing import parse
from invoices.provider import Provider

NAMES = [document.name for document in documents.TEN]
ORIGIN = Origin(job_id="job-1", step="read", idempotency_key="any")


def text_of(name: str) -> str:
    document = documents.named(name)
    assert document is not None
    return document.read().decode("utf-8-sig")


@pytest.fixture
async def reader(sandbox) -> AsyncIterator[Reader]:
    reader = Reader(Provider(base_url=f"{sandbox.url}/v1", api_key="sandbox", timeout=20))
    yield reader
    await reader.close()


async def test_the_ten_documents_travel_from_the_index_to_an_invoice(sandbox, reader):
    served = {item["name"]: item["url"] for item in sandbox.http.get("/documents").json()["items"]}

    for name in NAMES:
        text = sandbox.http.get(served[name]).content.decode("utf-8-sig")
        answer = await reader.ask(text, Origin("job", "read", str(uuid4())))
        assert invoice_in(answer) == parse(text_of(name))

    calls = sandbox.calls()
    assert [call["document"] for call in calls] == NAMES
    assert not any(call["keyChargedBefore"] for call in calls)


async def test_an_answer_says_that_it_comes_from_a_sandbox(sandbox, reader):
    answer = await reader.ask(text_of("nfe-1"), ORIGIN)

    assert answer.system_fingerprint == "sandbox"
    assert sandbox.http.get("/").headers["x-sandbox"] == "true"
    assert "SANDBOX" in sandbox.http.get("/").text


async def test_the_same_document_always_costs_the_same(sandbox, reader):
    one = await reader.ask(text_of("nfe-1687"), ORIGIN)
    other = await reader.ask(text_of("nfe-1687"), ORIGIN)

    assert one.usage is not None
    assert one.usage == other.usage
    assert one.usage.prompt_tokens > 2900
    first, second = sandbox.calls()
    assert first["chargedUsd"] == second["chargedUsd"] != "0"


async def test_the_ledger_knows_who_called_and_who_paid_twice(sandbox, reader):
    origin = Origin(job_id="job-1", step="read", idempotency_key=str(uuid4()))

    await reader.ask(text_of("nfe-1"), origin)
    await reader.ask(text_of("nfe-1"), origin)

    first, second = sandbox.calls()
    assert (first["jobId"], first["step"]) == ("job-1", "read")
    assert first["idempotencyKey"] == second["idempotencyKey"] == origin.idempotency_key
    assert first["keyChargedBefore"] is False
    assert second["keyChargedBefore"] is True


async def test_a_429_carries_its_pause_in_seconds_and_costs_nothing(sandbox, reader):
    sandbox.plan("nfe-1", "429:2")

    with pytest.raises(openai.RateLimitError) as refused:
        await reader.ask(text_of("nfe-1"), ORIGIN)

    assert refused.value.response.headers["retry-after"] == "2"
    assert [call["chargedUsd"] for call in sandbox.calls()] == ["0"]


async def test_a_429_carries_its_pause_as_a_date_that_is_never_early(sandbox, reader):
    sandbox.plan("nfe-1", "429-date:3")
    asked = datetime.now(UTC)

    with pytest.raises(openai.RateLimitError) as refused:
        await reader.ask(text_of("nfe-1"), ORIGIN)

    due = parsedate_to_datetime(refused.value.response.headers["retry-after"])
    assert 3 <= (due - asked).total_seconds() <= 9


async def test_planned_faults_are_used_up_in_order_for_their_document_only(sandbox, reader):
    sandbox.plan("nfe-1", "500", "429:1", "ok", "503")

    await reader.ask(text_of("nfe-1687"), ORIGIN)
    with pytest.raises(openai.InternalServerError):
        await reader.ask(text_of("nfe-1"), ORIGIN)
    with pytest.raises(openai.RateLimitError):
        await reader.ask(text_of("nfe-1"), ORIGIN)
    await reader.ask(text_of("nfe-1"), ORIGIN)

    assert sandbox.http.get("/faults").json() == {"nfe-1": ["503"]}


async def test_a_hanging_call_ends_at_the_callers_time_limit_and_costs_nothing(sandbox):
    sandbox.plan("nfe-1", "hang:30")
    hurried = Reader(Provider(f"{sandbox.url}/v1", "sandbox", timeout=0.5))

    started = time.monotonic()
    with pytest.raises(openai.APITimeoutError):
        await hurried.ask(text_of("nfe-1"), ORIGIN)

    assert time.monotonic() - started < 10
    assert [call["chargedUsd"] for call in sandbox.calls()] == ["0"]
    await hurried.close()


async def test_an_answer_that_nobody_waits_for_is_charged_all_the_same(sandbox):
    sandbox.plan("nfe-1", "slow:1")
    hurried = Reader(Provider(f"{sandbox.url}/v1", "sandbox", timeout=0.3))

    with pytest.raises(openai.APITimeoutError):
        await hurried.ask(text_of("nfe-1"), ORIGIN)
    await hurried.close()

    async with asyncio.timeout(20):
        while not sandbox.calls():
            await asyncio.sleep(0.05)
    assert sandbox.calls()[0]["outputTokens"] > 0


async def test_held_answers_come_once_released(sandbox, reader):
    sandbox.plan("nfe-1", "held")
    call = asyncio.create_task(reader.ask(text_of("nfe-1"), ORIGIN))
    async with asyncio.timeout(20):
        while sandbox.http.get("/held").json() != {"documents": ["nfe-1"]}:
            await asyncio.sleep(0.02)
    assert sandbox.calls() == []

    sandbox.http.post("/release")

    assert invoice_in(await call).number == "1"
    assert sandbox.http.get("/held").json() == {"documents": []}


async def test_forgotten_faults_do_not_happen(sandbox, reader):
    sandbox.plan("nfe-1", "500")

    assert sandbox.http.delete("/faults").status_code == 204

    assert invoice_in(await reader.ask(text_of("nfe-1"), ORIGIN)).number == "1"


def test_a_fault_that_does_not_exist_is_refused_and_nothing_is_planned(sandbox):
    refused = sandbox.plan("nfe-1", "500", "explode")

    assert refused.status_code == 422
    assert "found the fault 'explode', expected one of: ok" in refused.text
    assert sandbox.http.get("/faults").json() == {}


def test_a_fault_for_an_unknown_document_is_refused(sandbox):
    assert sandbox.plan("nfe-0", "500").status_code == 404


def test_an_unknown_document_is_404_and_names_the_known_ones(sandbox):
    answer = sandbox.http.get("/documents/nothing.xml")

    assert answer.status_code == 404
    assert "nfe-1687" in answer.text


async def test_the_sandbox_ends_on_sigterm_even_while_it_hangs(own_sandbox):
    own_sandbox.plan("nfe-1", "hang:60")
    patient = Reader(Provider(f"{own_sandbox.url}/v1", "sandbox", timeout=60))
    call = asyncio.create_task(patient.ask(text_of("nfe-1"), ORIGIN))
    async with asyncio.timeout(20):
        while not own_sandbox.calls():
            await asyncio.sleep(0.02)

    os.kill(own_sandbox.pid, signal.SIGTERM)

    # The connection breaks at once instead of after a minute.
    with pytest.raises(openai.APIError):
        async with asyncio.timeout(20):
            await call
    await patient.close()


def test_an_attached_sandbox_ends_when_its_input_closes():
    command = [sys.executable, "-m", "invoices.sandbox", "--attached"]

    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(timeout=30) == 0
