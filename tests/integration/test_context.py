"""The context: progress, transactions, model calls and keys, all through the job's fence."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from sqlalchemy import text
from sqlalchemy.sql.elements import SavepointClause

from filaviva.context import Usage
from filaviva.database import connect
from filaviva.database.transaction import DATABASE_ERRORS
from filaviva.errors import LeaseLost, OutOfReach
from filaviva_worker import calls
from filaviva_worker.context import LiveContext, idempotency_key
from filaviva_worker.control import guard
from filaviva_worker.live import Ending, Live
from fixtures.amqp import Proxy
from fixtures.retrying import AnswerLost, Jobs
from fixtures.running import claimed, tools
from fixtures.waiting import until

Making = Callable[..., Awaitable[LiveContext]]


@pytest.fixture
async def context_of(jobs: Jobs) -> Making:
    """Make the context of a running job's present attempt, beside a table of a user's."""
    await jobs.all("CREATE TABLE books (key text PRIMARY KEY)")

    async def make(job: UUID, **different: Any) -> LiveContext:
        mine = await claimed(jobs, job)
        return LiveContext(
            mine,
            Live(mine.id, mine.fence, math.inf),
            tools(jobs.engine, **different),
        )

    return make


async def taken_away(jobs: Jobs, job: UUID) -> None:
    await jobs.all("UPDATE filaviva.jobs SET fence = fence + 1 WHERE id = :id", id=job)


async def books(jobs: Jobs) -> list[str]:
    return [row["key"] for row in await jobs.all("SELECT key FROM books ORDER BY key")]


async def write(ctx: LiveContext, then: Callable[[], Awaitable[Any]] | None = None) -> None:
    """Write in a transaction, and let something happen before it ends."""
    async with ctx.transaction() as db:
        await db.execute(text("INSERT INTO books VALUES ('a')"))
        if then is not None:
            await then()


async def test_progress_is_shown_on_the_job_and_in_its_timeline(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()

    await (await context_of(job)).progress(7, 10, "read")

    shown = {"done": 7, "total": 10, "message": "read"}
    assert (await jobs.row(job))["progress"] == shown
    assert await jobs.events(job) == [("progress", shown)]


async def test_a_message_that_is_too_long_or_cannot_be_stored_is_shown_as_far_as_it_can(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()

    await (await context_of(job)).progress(1, 2, "page\x00" + "x" * 5000)

    said = (await jobs.row(job))["progress"]["message"]
    assert len(said) == 500
    assert said.startswith("page\N{REPLACEMENT CHARACTER}x")


@pytest.mark.parametrize(
    "wrong",
    [math.nan, math.inf, 10**5000, "7", None, True],
    ids=["nan", "inf", "huge", "text", "none", "true"],
)
async def test_a_progress_that_nobody_could_read_is_refused_with_words(
    jobs: Jobs, context_of: Making, wrong: Any
) -> None:
    job = await jobs.running()

    with pytest.raises(TypeError, match=r"ctx\.progress: found done=.*, expected a number"):
        await (await context_of(job)).progress(wrong, 10)

    assert (await jobs.row(job))["progress"] is None


async def test_a_stale_worker_shows_no_progress(jobs: Jobs, context_of: Making) -> None:
    job = await jobs.running()
    ctx = await context_of(job)
    await taken_away(jobs, job)

    with pytest.raises(LeaseLost):
        await ctx.progress(1, 2)

    assert (await jobs.row(job))["progress"] is None
    assert await jobs.events(job) == []


async def test_a_transaction_commits_at_once_and_by_itself(jobs: Jobs, context_of: Making) -> None:
    job = await jobs.running()

    await write(await context_of(job))

    assert await books(jobs) == ["a"]
    assert (await jobs.row(job))["state"] == "running"


async def test_a_transaction_whose_block_raises_leaves_nothing(
    jobs: Jobs, context_of: Making
) -> None:
    ctx = await context_of(await jobs.running())

    async def fails() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await write(ctx, fails)

    assert await books(jobs) == []


async def test_a_job_taken_away_while_its_transaction_is_open_writes_nothing(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()
    ctx = await context_of(job)

    with pytest.raises(LeaseLost):
        await write(ctx, lambda: taken_away(jobs, job))

    assert await books(jobs) == []


async def test_a_job_queued_again_under_the_same_fence_writes_nothing(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()
    ctx = await context_of(job)

    with pytest.raises(LeaseLost):
        await write(ctx, lambda: jobs.all("UPDATE filaviva.jobs SET state = 'queued'"))

    assert await books(jobs) == []


async def test_who_takes_the_job_waits_for_a_transaction_that_has_passed_its_check(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()
    ctx, order = await context_of(job), []

    async with jobs.engine.begin() as thief:
        await thief.execute(text("UPDATE filaviva.jobs SET fence = fence + 1"))

        async def refused() -> None:
            with pytest.raises(LeaseLost):
                await write(ctx)
            order.append("refused")

        writing = asyncio.create_task(refused())
        await until(lambda: _waits_for_a_lock(jobs))
        order.append("taken")
    await asyncio.wait_for(writing, 10)

    assert order == ["taken", "refused"]
    assert await books(jobs) == []


async def _waits_for_a_lock(jobs: Jobs) -> bool:
    found = await jobs.one(
        "SELECT count(*) AS n FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return bool(found["n"])


async def test_model_calls_add_up_on_the_attempt_and_on_the_job(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running(cost_usd="1.5")
    ctx = await context_of(job)

    for _ in range(3):
        await ctx.record_call("openai", "gpt-4o-mini", {"prompt_tokens": 1000})

    assert (await jobs.row(job))["cost_usd"] == Decimal("1.50045")
    assert (await jobs.attempt(job))["cost_usd"] == Decimal("0.00045")
    (first, *_) = await jobs.all("SELECT * FROM filaviva.llm_calls")
    assert (first["provider"], first["model"], first["input_tokens"]) == (
        "openai", "gpt-4o-mini", 1000
    )  # fmt: skip
    assert (first["cost_usd"], first["price_source"]) == (Decimal("0.00015"), "genai-prices")


async def test_money_that_was_spent_is_recorded_after_the_job_was_taken_away(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()
    ctx = await context_of(job)
    await taken_away(jobs, job)

    await ctx.record_call("p", "m", {}, cost_usd=Decimal("0.25"))

    assert (await jobs.row(job))["cost_usd"] == Decimal("0.25")


async def test_a_call_whose_commit_was_not_answered_is_counted_once(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()
    ctx = await context_of(job, engine=AnswerLost(jobs.engine))

    await ctx.record_call("p", "m", {}, cost_usd=Decimal("0.25"))

    assert (await jobs.row(job))["cost_usd"] == Decimal("0.25")
    assert (await jobs.attempt(job))["cost_usd"] == Decimal("0.25")
    assert await jobs.one("SELECT count(*) AS n FROM filaviva.llm_calls") == {"n": 1}


async def test_a_call_waits_for_a_database_that_is_away(
    jobs: Jobs, database: str, context_of: Making
) -> None:
    job = await jobs.running()
    async with Proxy(database) as way:
        engine, fresh = connect(way.url, name="test", size=2), True
        ctx = await context_of(job, engine=engine, lease_is_fresh=lambda: fresh)
        way.silence()
        recording = asyncio.create_task(ctx.record_call("p", "m", {}, cost_usd=Decimal(1)))
        await until(lambda: way.accepted)
        way.cut()
        way.resume()
        await asyncio.wait_for(recording, 30)
        assert (await jobs.row(job))["cost_usd"] == 1

        fresh = False
        way.close()
        ctx._live.end(Ending.SHUTDOWN)  # noqa: SLF001 - as a stop does
        with pytest.raises(DATABASE_ERRORS):
            await ctx.record_call("p", "m", {}, cost_usd=Decimal(1))
        await engine.dispose()


async def test_progress_waits_for_a_database_that_is_away(
    jobs: Jobs, database: str, context_of: Making
) -> None:
    job = await jobs.running()
    async with Proxy(database) as way:
        engine = connect(way.url, name="test", size=1)
        autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        ctx = await context_of(job, autocommit=autocommit)
        way.close()
        showing = asyncio.create_task(ctx.progress(1, 2))
        await until(lambda: ctx.waited)
        await way.open()
        await asyncio.wait_for(showing, 30)
        await engine.dispose()

    assert (await jobs.row(job))["progress"] == {"done": 1, "total": 2, "message": None}


async def test_a_transaction_that_our_database_breaks_off_costs_no_attempt(
    jobs: Jobs, database: str, context_of: Making
) -> None:
    job = await jobs.running()
    async with Proxy(database) as way:
        engine = connect(way.url, name="test", size=1)
        ctx = await context_of(job, transactions=engine)

        async def broken_off() -> None:
            async with ctx.transaction() as db:
                await db.execute(text("SELECT 1"))
                way.close()
                await db.execute(text("SELECT 1"))

        for _ in ("while it is open", "before it can begin"):
            with pytest.raises(OutOfReach, match="the transaction was not confirmed"):
                await broken_off()
        await engine.dispose()


async def test_what_a_transaction_meets_elsewhere_is_not_ours(
    jobs: Jobs, context_of: Making
) -> None:
    ctx = await context_of(await jobs.running())

    with pytest.raises(ConnectionRefusedError):
        async with ctx.transaction():
            raise ConnectionRefusedError("another server")


@pytest.mark.parametrize(
    "statement", ["COMMIT", " -- now\n rollback", "rollback work", "end", "BEGIN", "abort"]
)
async def test_a_statement_that_would_end_a_fenced_transaction_is_refused_and_nothing_is_written(
    jobs: Jobs, database: str, context_of: Making, statement: str
) -> None:
    job = await jobs.running()
    transactions = connect(database, name="test", size=2)
    guard(transactions)
    ctx = await context_of(job, transactions=transactions)

    async def ends() -> None:
        async with ctx.transaction() as db:
            await db.execute(text("INSERT INTO books VALUES ('a')"))
            await db.execute(text(statement))
            await db.execute(text("INSERT INTO books VALUES ('b')"))

    with pytest.raises(TypeError, match=r"ctx\.transaction: found"):
        await ends()

    assert await books(jobs) == []
    await transactions.dispose()


async def test_a_savepoint_inside_a_fenced_transaction_works(
    jobs: Jobs, database: str, context_of: Making
) -> None:
    transactions = connect(database, name="test", size=2)
    guard(transactions)
    ctx = await context_of(await jobs.running(), transactions=transactions)

    async with ctx.transaction() as db:
        await db.execute(text("INSERT INTO books VALUES ('a')"))
        async with db.begin_nested() as trial:
            await db.execute(text("INSERT INTO books VALUES ('b')"))
            await trial.rollback()
        await db.execute(text("SAVEPOINT mine"))
        await db.execute(text("ROLLBACK TO mine"))

    assert await books(jobs) == ["a"]
    await transactions.dispose()


CONTROL = [
    "ROLLBACK",
    " ; commit",
    "-- at last\nEND",
    "/* a\n b */ begin",
    "start  transaction",
    "SAVEPOINT x",
    "rollback to x",
    "release x",
    "abort",
    "prepare transaction 'x'",
    "SET TRANSACTION READ ONLY",
    "set session characteristics as transaction read only",
]


@pytest.mark.parametrize("statement", [*map(text, CONTROL), SavepointClause("x")], ids=str)
async def test_an_effect_that_would_end_the_transaction_of_others_is_refused_at_once(
    jobs: Jobs, context_of: Making, statement: Any
) -> None:
    ctx = await context_of(await jobs.running())

    with pytest.raises(TypeError, match="expected a statement that changes rows"):
        ctx.effect(statement)

    assert ctx.effects == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO begin VALUES (1)",
        "/* end */ UPDATE t SET a = 1",
        "SELECT endorse()",
        "",
        "set x",
    ],
)
async def test_other_effects_are_taken(jobs: Jobs, context_of: Making, statement: str) -> None:
    ctx = await context_of(await jobs.running())

    ctx.effect(text(statement))

    assert len(ctx.effects) == 1


async def test_many_calls_at_once_lose_no_cent(jobs: Jobs, context_of: Making) -> None:
    job = await jobs.running()
    ctx = await context_of(job)

    await asyncio.gather(
        *(ctx.record_call("p", "m", {}, cost_usd=Decimal("0.01")) for _ in range(30))
    )

    assert (await jobs.row(job))["cost_usd"] == Decimal("0.30")


async def test_a_model_without_a_known_price_costs_an_unknown_sum_and_a_line_in_the_log(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()
    ctx = await context_of(job)

    with structlog.testing.capture_logs() as logged:
        await ctx.record_call("nobody", "nothing-1", {"prompt_tokens": 10})

    (call,) = await jobs.all("SELECT * FROM filaviva.llm_calls")
    assert (call["cost_usd"], call["price_source"], call["input_tokens"]) == (None, None, 10)
    assert (await jobs.row(job))["cost_usd"] == 0
    assert [line["model"] for line in logged] == ["nothing-1"]


OPENAI = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 400},
}
RESPONSES = {
    "input_tokens": 1000,
    "output_tokens": 100,
    "input_tokens_details": {"cached_tokens": 400},
}
ANTHROPIC = {
    "input_tokens": 600,
    "output_tokens": 100,
    "cache_read_input_tokens": 400,
    "cache_creation_input_tokens": 0,
}


def as_object(shape: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(
        **{k: as_object(v) if isinstance(v, dict) else v for k, v in shape.items()}
    )


@pytest.mark.parametrize(
    "usage",
    [
        OPENAI,
        as_object(OPENAI),
        RESPONSES,
        as_object(RESPONSES),
        ANTHROPIC,
        as_object(ANTHROPIC),
        Usage(input_tokens=600, output_tokens=100, cache_read_tokens=400),
    ],
    ids=["openai", "object", "responses", "object", "anthropic", "object", "usage"],
)
def test_every_token_is_counted_once_in_whatever_shape_it_is_told(usage: object) -> None:
    call = calls.priced("openai", "gpt-4o-mini", usage)

    assert (call.input_tokens, call.output_tokens) == (600, 100)
    assert (call.cache_read_tokens, call.cache_write_tokens) == (400, 0)
    # 600 at 0.15, 400 cached at 0.075 and 100 out at 0.60 dollars a million
    assert call.cost_usd == Decimal("0.00018")


def test_tokens_read_from_and_written_to_a_cache_have_their_own_price() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 200}

    call = calls.priced("anthropic", "claude-sonnet-4-0", usage)

    # 10 at 3, 400 read at 0.30 and 200 written at 3.75 dollars a million
    assert call.cost_usd == Decimal("0.0009")


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": None},
        {"prompt_tokens": "many"},
        {"prompt_tokens": -5},
        {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}},
        {"prompt_tokens": True},
        object(),
    ],
)
def test_a_strange_usage_is_recorded_and_breaks_nothing(usage: object) -> None:
    call = calls.priced("openai", "gpt-4o-mini", usage)

    assert min(call.input_tokens, call.output_tokens, call.cache_read_tokens) >= 0


def test_what_the_provider_says_it_cost_is_kept() -> None:
    call = calls.priced("p", "m", {"prompt_tokens": 5}, cost_usd=Decimal("0.123"))

    assert (call.cost_usd, call.price_source) == (Decimal("0.123"), "provider")


def test_a_key_is_the_same_for_the_same_input_and_never_too_long_for_a_provider() -> None:
    job = uuid4()
    names = ["store", "x" * 300, "x" * 301, "ü" * 300, ""]

    keys = [idempotency_key(job, 1, name) for name in names]

    assert keys == [idempotency_key(job, 1, name) for name in names]
    assert len(set(keys)) == len(names)
    assert max(len(key) for key in keys) <= 255
    assert idempotency_key(job, 2, "store") not in keys
    assert idempotency_key(uuid4(), 1, "store") not in keys


async def test_a_key_survives_a_new_attempt_and_changes_with_edited_input(
    jobs: Jobs, context_of: Making
) -> None:
    job = await jobs.running()
    first = (await context_of(job)).idempotency_key("store")

    await jobs.all("UPDATE filaviva.jobs SET attempt = 2, fence = 5")
    second = (await context_of(job)).idempotency_key("store")
    await jobs.all("UPDATE filaviva.jobs SET revision = 2")
    edited = (await context_of(job)).idempotency_key("store")

    assert first == second
    assert first != edited
