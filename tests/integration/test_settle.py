"""Settle: every outcome is recorded once, and one bad neighbour costs nobody else's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Column, Executable, Integer, MetaData, Table, Text, insert, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator

from filaviva.broker.topology import Topology
from filaviva.database import connect
from filaviva.outcome import Canceled, Dead, Effect, Failure, Retry
from filaviva.relay import Relay
from filaviva_worker.facts import Settled
from filaviva_worker.live import Ending, Rung
from filaviva_worker.settle import Ended, Settling
from fixtures.amqp import Proxy
from fixtures.retrying import Jobs
from fixtures.running import ended, handler_of, nothing, unsent
from fixtures.thief import Thief
from fixtures.waiting import until


class Fussy(TypeDecorator[str]):
    """A user's own type that raises what it likes."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: Any) -> Any:
        if value == "fussy":
            raise RuntimeError("no, thank you")
        return value


effects = Table(
    "effects",
    MetaData(),
    Column("key", Text, primary_key=True),
    Column("n", Integer),
    Column("body", JSONB),
    Column("fussy", Fussy),
)


@pytest.fixture
async def effect_table(jobs: Jobs) -> None:
    await jobs.all("CREATE TABLE effects (key text PRIMARY KEY, n integer, body jsonb, fussy text)")


class Recorder:
    """A settling with what it told."""

    def __init__(self, engine: Any) -> None:
        self.told: dict[UUID, Settled] = {}
        self.relay: Relay = unsent(engine)
        self.settling = Settling(engine, self.relay, Topology(), self._hear)

    def _hear(self, facts: Any) -> None:
        self.told |= {fact.job.id: fact for fact in facts}

    async def settle(self, *several: Ended) -> None:
        for each in several:
            self.settling.add(each)
        assert await self.settling.step() == len(several)

    @property
    def counted(self) -> dict[UUID, bool]:
        return {job: fact.counted for job, fact in self.told.items()}


@pytest.fixture
def recorder(jobs: Jobs) -> Recorder:
    return Recorder(jobs.engine)


def row(key: str, **values: Any) -> Executable:
    return insert(effects).values(key=key, **{"n": 1, "body": None, "fussy": "", **values})


async def states(jobs: Jobs, *several: UUID) -> list[str]:
    return [(await jobs.row(job))["state"] for job in several]


PLAIN = insert(effects)
BAD_EFFECTS = {
    "a refused value": lambda: row("taken"),
    "a value of the wrong type": lambda: row("x", n="many"),
    "a number too large": lambda: row("x", n=2**40),
    "a NUL character": lambda: row("a\x00b"),
    "what has no JSON form": lambda: row("x", body=object()),
    "an error of the user's own type": lambda: row("x", fussy="fussy"),
    "a missing table": lambda: text("INSERT INTO nowhere VALUES (1)"),
    "a syntax error": lambda: text("INSERT INTO"),
    "a parameter without a value": lambda: text("SELECT :missing"),
    "no statement at all": lambda: "SELECT 1",
    "a refused parameter": lambda: Effect(PLAIN, {"key": "taken"}),
    "a parameter of the wrong type": lambda: Effect(PLAIN, {"key": "x", "n": "many"}),
    "too few parameters": lambda: Effect(text("SELECT :one, :two"), {"one": "x"}),
    "parameters without names": lambda: Effect(PLAIN, ["x", 1]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(
    ("lifecycle", "callback", "expected"),
    [(False, "NULL", False), (True, "NULL", True), (False, "'https://a.example/'", True)],
)
async def test_the_relay_is_hurried_only_for_an_end_that_somebody_is_told(
    jobs: Jobs, recorder: Recorder, *, lifecycle: bool, callback: str, expected: bool
) -> None:
    await jobs.policy(lifecycle=lifecycle)
    job = await jobs.running(callback_url=callback)
    one = await ended(jobs, job)
    one.job.calls_back = callback != "NULL"
    one.handler = handler_of(nothing, lifecycle=lifecycle)
    hurried: list[bool] = []
    recorder.relay.hurry = lambda: hurried.append(True)  # type: ignore[method-assign]

    await recorder.settle(one)

    assert bool(hurried) == expected
    waiting = await jobs.all("SELECT id FROM filaviva.outbox WHERE locked_until <= now()")
    assert bool(waiting) == expected


@pytest.mark.usefixtures("effect_table")
@pytest.mark.parametrize("bad", BAD_EFFECTS)
async def test_a_bad_effect_fails_its_own_job_and_its_neighbours_complete(
    jobs: Jobs, recorder: Recorder, bad: str
) -> None:
    await jobs.all("INSERT INTO effects VALUES ('taken', 1)")
    first, offender, last = [await jobs.running() for _ in range(3)]

    async with asyncio.timeout(20):
        await recorder.settle(
            await ended(jobs, first, None, row("first")),
            await ended(jobs, offender, None, BAD_EFFECTS[bad](), row("of the bad one")),
            await ended(jobs, last, None, row("last")),
        )

    assert await states(jobs, first, offender, last) == ["succeeded", "running", "succeeded"]
    stored = await jobs.all("SELECT key FROM effects WHERE key <> 'taken' ORDER BY key")
    assert [each["key"] for each in stored] == ["first", "last"]
    assert (await jobs.attempt(offender))["outcome"] in ("retry", "failed")
    assert (await jobs.row(offender))["lease_owner"] == "decision"
    assert recorder.counted == {first: True, offender: True, last: True}


@pytest.mark.usefixtures("effect_table")
@pytest.mark.parametrize("bad", BAD_EFFECTS)
async def test_a_bad_effect_alone_fails_its_job(jobs: Jobs, recorder: Recorder, bad: str) -> None:
    await jobs.all("INSERT INTO effects VALUES ('taken', 1)")
    job = await jobs.running()

    async with asyncio.timeout(20):
        await recorder.settle(await ended(jobs, job, None, BAD_EFFECTS[bad]()))

    assert (await jobs.attempt(job))["outcome"] in ("retry", "failed")


@pytest.mark.usefixtures("effect_table")
async def test_a_row_that_somebody_holds_does_not_fail_the_others(
    jobs: Jobs, recorder: Recorder
) -> None:
    free, held, also_free = [await jobs.running() for _ in range(3)]

    async with jobs.engine.begin() as connection:
        await connection.execute(
            text("SELECT 1 FROM filaviva.jobs WHERE id = :id FOR UPDATE"), {"id": held}
        )
        settling = asyncio.create_task(
            recorder.settle(
                await ended(jobs, free, None, row("a")),
                await ended(jobs, held, None, row("b")),
                await ended(jobs, also_free, None, row("c")),
            )
        )

        await until(lambda: len(recorder.told) == 2, seconds=30)
        assert await states(jobs, free, held, also_free) == ["succeeded", "running", "succeeded"]
    await asyncio.wait_for(settling, 20)
    await until(lambda: held in recorder.told)

    assert recorder.counted == {free: True, held: True, also_free: True}
    assert await jobs.one("SELECT count(*) AS n FROM effects") == {"n": 3}


@pytest.mark.usefixtures("effect_table")
async def test_a_stale_outcome_is_void_and_counted_as_such(jobs: Jobs, recorder: Recorder) -> None:
    stale, mine = await jobs.running(), await jobs.running()
    late = await ended(jobs, stale, None, row("late"))
    await jobs.all("UPDATE filaviva.jobs SET fence = fence + 1 WHERE id = :id", id=stale)

    await recorder.settle(late, await ended(jobs, mine, None, row("mine")))

    assert recorder.counted == {stale: False, mine: True}
    assert await states(jobs, stale, mine) == ["running", "succeeded"]
    assert await jobs.all("SELECT key FROM effects") == [{"key": "mine"}]


async def test_what_was_lost_is_void_and_writes_nothing(jobs: Jobs, recorder: Recorder) -> None:
    job = await jobs.running()
    before = await jobs.row(job)

    await recorder.settle(await ended(jobs, job, Ending.LOST))

    assert recorder.counted == {job: False}
    assert {**await jobs.row(job), "now": None} == {**before, "now": None}


@pytest.mark.usefixtures("effect_table")
async def test_outcomes_of_every_kind_settle_in_one_batch(jobs: Jobs, recorder: Recorder) -> None:
    done, retried, dead, canceled, released = [
        await jobs.running(state="'cancel_requested'" if n == 3 else "'running'") for n in range(5)
    ]

    await recorder.settle(
        await ended(jobs, done, None, row("done")),
        await ended(jobs, retried, Retry(Failure("timeout", "TimeoutError", "late"), 3)),
        await ended(jobs, dead, Dead(Failure("terminal", "Terminal", "no invoice"))),
        await ended(jobs, canceled, Canceled()),
        await ended(jobs, released, Ending.SHUTDOWN),
    )

    assert all(recorder.counted.values())
    assert len(recorder.counted) == 5
    outcomes = [(await jobs.attempt(job))["outcome"] for job in recorder.counted]
    assert sorted(outcomes) == ["canceled", "failed", "released", "retry", "succeeded"]
    assert await states(jobs, done, canceled, released) == ["succeeded", "canceled", "queued"]
    assert recorder.relay.pending == 3  # two for the retry-scheduler, one new wake-up


async def test_a_canceled_job_that_a_shutdown_stopped_is_canceled_and_not_lost(
    jobs: Jobs, recorder: Recorder
) -> None:
    canceled, running = await jobs.running(state="'cancel_requested'"), await jobs.running()

    await recorder.settle(
        await ended(jobs, canceled, Ending.SHUTDOWN), await ended(jobs, running, Ending.SHUTDOWN)
    )

    assert await states(jobs, canceled, running) == ["canceled", "queued"]
    assert [(await jobs.attempt(job))["outcome"] for job in (canceled, running)] == [
        "canceled",
        "released",
    ]
    assert recorder.counted == {canceled: True, running: True}
    assert isinstance(recorder.told[canceled].outcome, Canceled)


@pytest.mark.usefixtures("effect_table")
@pytest.mark.parametrize("outcome", ["done", "retry", "canceled", "released"])
async def test_a_commit_whose_answer_was_lost_is_recognised(
    jobs: Jobs, database: str, outcome: str
) -> None:
    state = "'cancel_requested'" if outcome == "canceled" else "'running'"
    job = await jobs.running(state=state)
    what: Any = {
        "done": None,
        "retry": Retry(Failure("timeout", "TimeoutError", "late")),
        "canceled": Canceled(),
        "released": Ending.SHUTDOWN,
    }[outcome]
    one = await ended(jobs, job, what, *([row("once")] if outcome == "done" else []))
    thief = Thief(database)
    await thief.open()
    engine = connect(thief.url, name="robbed", size=2)
    thief.steal = 1
    recorder = Recorder(engine)

    async with asyncio.timeout(20):
        await recorder.settle(one)
    await engine.dispose()
    await thief.close()

    assert thief.stolen == 1
    assert recorder.counted == {job: True}
    assert (await jobs.one("SELECT count(*) AS n FROM effects"))["n"] == (outcome == "done")
    assert (await jobs.one("SELECT count(*) AS n FROM filaviva.outbox"))["n"] <= 1
    (attempt,) = await jobs.all("SELECT outcome FROM filaviva.attempts WHERE job_id = :id", id=job)
    assert attempt["outcome"] == {"done": "succeeded"}.get(outcome, outcome)


@pytest.mark.usefixtures("effect_table")
async def test_a_server_that_ends_our_session_costs_no_outcome(jobs: Jobs) -> None:
    job = await jobs.running()
    await jobs.all("CREATE TABLE once AS SELECT 1 AS n")
    end = text("SELECT pg_terminate_backend(pg_backend_pid()) FROM once")
    one = await ended(jobs, job, None, row("once"), end)
    recorder = Recorder(jobs.engine)

    settling = asyncio.create_task(recorder.settle(one))
    await until(lambda: _warned(jobs))
    await jobs.all("DELETE FROM once")
    await asyncio.wait_for(settling, 20)

    assert recorder.counted == {job: True}
    assert await jobs.all("SELECT key FROM effects") == [{"key": "once"}]


async def _warned(jobs: Jobs) -> bool:
    found = await jobs.one(
        "SELECT sessions_killed AS n FROM pg_stat_database WHERE datname = current_database()"
    )
    return bool(found["n"])


@pytest.mark.usefixtures("effect_table")
async def test_outcomes_wait_while_the_database_is_away_and_are_recorded_later(
    jobs: Jobs, database: str
) -> None:
    several = [await jobs.running() for _ in range(3)]
    many = [await ended(jobs, job, None, row(str(n))) for n, job in enumerate(several)]

    async with Proxy(database) as way:
        engine = connect(way.url, name="test", size=2)
        recorder = Recorder(engine)
        way.silence()
        settling = asyncio.create_task(recorder.settle(*many))
        await until(lambda: way.accepted)
        way.cut()
        assert not recorder.told
        assert await states(jobs, *several) == ["running"] * 3
        way.resume()
        await asyncio.wait_for(settling, 30)
        await engine.dispose()

    assert recorder.counted == dict.fromkeys(several, True)
    assert await jobs.one("SELECT count(*) AS n FROM effects") == {"n": 3}


async def test_the_loop_records_what_is_left_before_it_ends(jobs: Jobs, recorder: Recorder) -> None:
    several = [await jobs.running() for _ in range(150)]
    stop = asyncio.Event()
    stop.set()
    for job in several:
        recorder.settling.add(await ended(jobs, job))

    await asyncio.wait_for(recorder.settling.run(stop), 20)

    assert recorder.counted == dict.fromkeys(several, True)


@pytest.mark.usefixtures("effect_table")
async def test_an_outcome_is_told_once_though_its_row_is_let_go_in_the_middle_of_the_batch(
    jobs: Jobs,
) -> None:
    told: list[UUID] = []
    settling = Settling(
        jobs.engine,
        unsent(jobs.engine),
        Topology(),
        lambda facts: told.extend(fact.job.id for fact in facts),
    )
    first, second, third = [await jobs.running() for _ in range(3)]
    async with holding(jobs, second):
        async with holding(jobs, first):
            for job in (first, second, third):
                settling.add(await ended(jobs, job, None, row(str(job))))
            step = asyncio.create_task(settling.step())
            # The second one's turn, for as long as a lock is awaited: the first one is apart.
            await until(lambda: settling._apart, seconds=20)  # noqa: SLF001
        await until(lambda: first in told)
        await step
    await until(lambda: second in told)

    assert sorted(told) == sorted([first, second, third])


async def test_a_statement_that_takes_too_long_is_repeated_and_ends_no_worker(jobs: Jobs) -> None:
    recorder = Recorder(jobs.engine)
    job = await jobs.running()
    failed = await ended(jobs, job, Retry(Failure("timeout", "Slow", "too slow")))

    async with jobs.engine.begin() as holder:
        await holder.execute(text("LOCK TABLE filaviva.attempts"))
        settling = asyncio.create_task(recorder.settle(failed))
        await until(lambda: _canceled_once(jobs), seconds=20)
        assert not settling.done()
    await asyncio.wait_for(settling, 20)

    assert recorder.counted == {job: True}


async def _canceled_once(jobs: Jobs) -> bool:
    """End the waiting statement as its time limit would."""
    found = await jobs.all(
        "SELECT pg_cancel_backend(pid) AS canceled FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return bool(found)


@asynccontextmanager
async def holding(jobs: Jobs, job: UUID) -> AsyncIterator[None]:
    """Hold a job's row, as somebody with an open transaction does."""
    async with jobs.engine.begin() as connection:
        await connection.execute(
            text("SELECT 1 FROM filaviva.jobs WHERE id = :id FOR UPDATE"), {"id": job}
        )
        yield


async def test_work_that_ends_after_it_was_fenced_is_not_counted_once_more(
    jobs: Jobs, recorder: Recorder
) -> None:
    job = await jobs.running()
    late = await ended(jobs, job, Canceled())
    late.live.rung = Rung.FENCED
    # As the ladder gave it up, and the scheduler decided.
    await jobs.all("UPDATE filaviva.attempts SET outcome = 'canceled'")
    await jobs.all("UPDATE filaviva.jobs SET state = 'cancel_requested'")
    await jobs.all("UPDATE filaviva.jobs SET state = 'canceled', fence = fence + 1")

    await recorder.settle(late)

    assert recorder.counted == {job: False}
