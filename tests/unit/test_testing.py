"""A handler can be tried in memory, and the trial does not claim more than it shows."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from filaviva import App, ConfigurationError, Context, Contract, Policy, SyncContext, Terminal
from filaviva.outcome import Dead, Done, Effect, Retry
from filaviva.testing import NoDatabase, Recorded, run_handler


class Read(Contract, type="document.read", version=1):
    pages: int


class Provider:
    """Counts what it is asked, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.asked = 0
        self.failures = failures

    async def ask(self, page: int) -> Decimal:
        self.asked += 1
        if self.asked <= self.failures:
            raise TimeoutError
        return Decimal(page)


def reading(provider: Provider) -> App:
    app = App("reader")

    @app.handler(Read)
    async def read(job: Read, context: Context) -> dict[str, Decimal]:
        answer = await context.step("ask", provider.ask, job.pages)
        await context.record_call("openai", "gpt", {"input_tokens": 1})
        await context.progress(1, 2, "asked")
        context.effect("INSERT …")  # type: ignore[arg-type]
        return {"total": await context.step("double", lambda: answer * 2)}

    return app


async def test_a_run_gives_the_result_and_records_what_the_handler_did() -> None:
    ran = await run_handler(reading(Provider()), Read(pages=2))

    assert ran.outcome == Done('{"total":"4"}', (Effect("INSERT …"),))
    assert ran.value == {"total": Decimal(4)}
    assert list(ran.recorded.steps) == ["ask", "double"]
    assert ran.recorded.progress == [(1, 2, "asked")]
    assert [call.model for call in ran.recorded.calls] == ["gpt"]


async def test_a_second_run_does_not_repeat_a_finished_step() -> None:
    provider = Provider(failures=1)
    app = reading(provider)

    first = await run_handler(app, Read(pages=2))
    second = await run_handler(app, Read(pages=2), recorded=first.recorded)
    third = await run_handler(app, Read(pages=2), recorded=first.recorded)

    assert isinstance(first.outcome, Retry)
    assert (first.outcome.failure.error_class, first.outcome.failure.step) == ("timeout", "ask")
    assert (second.value, third.value) == ({"total": Decimal(4)}, {"total": Decimal(4)})
    assert (provider.asked, third.recorded.attempt) == (2, 3)


async def test_a_sync_handler_is_run_too() -> None:
    def read(job: Read, context: SyncContext) -> int:
        context.progress(1, 1)
        return context.step("count", lambda: job.pages + 1)

    ran = await run_handler(read, Read(pages=2))

    assert (ran.value, ran.recorded.progress) == (3, [(1, 1, None)])


async def test_what_is_raised_is_classified_by_the_policy() -> None:
    async def read(_job: Read, _context: Context) -> None:
        raise Terminal("no such page")

    ran = await run_handler(read, Read(pages=2))

    assert isinstance(ran.outcome, Dead)
    assert ran.outcome.failure.message == "no such page"


async def test_the_timeout_of_the_policy_holds() -> None:
    app = App("reader")

    @app.handler(Read, policy=Policy(timeout=0.01))
    async def read(_job: Read, _context: Context) -> None:
        await asyncio.Event().wait()

    ran = await run_handler(app, Read(pages=1))

    assert isinstance(ran.outcome, Retry)
    assert ran.outcome.failure.error_class == "timeout"


async def test_a_result_that_does_not_fit_is_found() -> None:
    async def read(_job: Read, _context: Context) -> int:
        result: Any = "many"
        return result  # type: ignore[no-any-return]

    ran = await run_handler(read, Read(pages=1))

    assert isinstance(ran.outcome, Dead)
    assert ran.outcome.failure.error_class == "invalid_output"


async def test_there_is_no_database_and_it_says_so() -> None:
    async def read(_job: Read, context: Context) -> None:
        async with context.transaction():
            pass

    with pytest.raises(NoDatabase, match="run this on the real stack"):
        await run_handler(read, Read(pages=1))


async def test_an_app_without_a_handler_for_the_job_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected one of document"):
        await run_handler(App("reader"), Read(pages=1), recorded=Recorded())
