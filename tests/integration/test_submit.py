"""Submissions are kept once per key, many to a commit, whatever fails on the way."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database import connect
from filaviva.errors import Rejected, Unreachable
from filaviva.operations.submission import Submission
from filaviva.operations.submit import Limits, Submitted, Submitter
from filaviva.outbox import OutboxRow
from fixtures.submissions import submission as plain_submission
from fixtures.thief import Thief


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    made = connect(database, name="test")
    yield made
    await made.dispose()


class Relayed:
    """What has been handed over to the relay."""

    def __init__(self) -> None:
        self.batches: list[Sequence[OutboxRow]] = []

    def __call__(self, rows: Sequence[OutboxRow]) -> None:
        self.batches.append(rows)

    @property
    def rows(self) -> list[OutboxRow]:
        return [row for batch in self.batches for row in batch]


@pytest.fixture
def relayed() -> Relayed:
    return Relayed()


@pytest.fixture
def submitter(engine: AsyncEngine, relayed: Relayed) -> Submitter:
    return Submitter(engine, relayed)


def submission(key: str, payload: str = '{"n": 1}', **changes: Any) -> Submission:
    fingerprint = hashlib.sha256(payload.encode()).digest()
    plain = {"idempotency_key": key, "fingerprint": fingerprint, "payload": payload}
    return plain_submission(**{**plain, "correlation_id": "correlation", **changes})


async def rows(engine: AsyncEngine, statement: str) -> list[Any]:
    async with engine.connect() as connection:
        return list(await connection.execute(text(statement)))


async def test_job_first_event_and_wakeup_are_one_commit(
    engine: AsyncEngine, submitter: Submitter, relayed: Relayed
) -> None:
    kept = await submitter.submit(submission("a"))

    (job,) = await rows(engine, "SELECT id, state, epoch, issue FROM filaviva.jobs")
    assert tuple(job) == (kept.job_id, "queued", 1, 1)
    (event,) = await rows(engine, "SELECT job_id, kind, data FROM filaviva.job_events")
    assert tuple(event) == (kept.job_id, "state", {"status": "queued", "reason": "submitted"})
    (wakeup,) = relayed.rows
    assert wakeup.message_id == f"{kept.job_id}:1:1"
    assert (wakeup.exchange, wakeup.routing_key) == ("filaviva.jobs", "tests")
    assert (wakeup.job_id, wakeup.epoch, wakeup.correlation_id) == (kept.job_id, 1, "correlation")
    (kept_row,) = await rows(engine, "SELECT id, locked_until > now() FROM filaviva.outbox")
    assert tuple(kept_row) == (wakeup.id, True)


async def test_ids_of_later_submissions_are_greater(submitter: Submitter) -> None:
    kept = [await submitter.submit(submission(f"k{n}")) for n in range(20)]

    assert [one.job_id for one in kept] == sorted(one.job_id for one in kept)


async def test_fifty_identical_submissions_at_once_are_one_job(
    engine: AsyncEngine, submitter: Submitter, relayed: Relayed
) -> None:
    kept = await asyncio.gather(*(submitter.submit(submission("same")) for _ in range(50)))

    assert len({one.job_id for one in kept}) == 1
    assert sum(not one.duplicate for one in kept) == 1
    assert len(relayed.rows) == 1
    assert len(await rows(engine, "SELECT id FROM filaviva.jobs")) == 1


async def test_identical_submissions_to_many_processes_are_one_job(
    engine: AsyncEngine, relayed: Relayed
) -> None:
    processes = [Submitter(engine, relayed) for _ in range(8)]
    keys = [f"key-{n}" for n in range(40)]

    kept = await asyncio.gather(
        *(
            process.submit(submission(key))
            for turn, process in enumerate(processes)
            for key in (keys if turn % 2 else reversed(keys))
        )
    )

    assert len({one.job_id for one in kept}) == 40
    assert sum(not one.duplicate for one in kept) == 40
    assert len(relayed.rows) == 40


async def test_a_repeated_submission_gets_the_present_status(
    engine: AsyncEngine, submitter: Submitter
) -> None:
    first = await submitter.submit(submission("a"))
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE filaviva.jobs SET state = 'running'"))

    again = await submitter.submit(submission("a"))

    assert again == Submitted(first.job_id, "running", duplicate=True)


async def test_a_key_with_other_content_is_refused(submitter: Submitter) -> None:
    await submitter.submit(submission("a"))

    with pytest.raises(Rejected) as refused:
        await submitter.submit(submission("a", '{"n": 2}'))

    assert (refused.value.status, refused.value.code) == (422, "idempotency_key_reused")


async def test_other_content_in_the_same_batch_is_refused(submitter: Submitter) -> None:
    answers = await asyncio.gather(
        *(submitter.submit(submission("a", f'{{"n": {n % 2}}}')) for n in range(10)),
        return_exceptions=True,
    )

    kept = [one for one in answers if isinstance(one, Submitted)]
    refused = [one for one in answers if isinstance(one, Rejected)]
    assert (len(kept), len(refused)) == (5, 5)
    assert {one.code for one in refused} == {"idempotency_key_reused"}


async def test_the_same_key_of_two_tenants_is_two_jobs(submitter: Submitter) -> None:
    one, other = await asyncio.gather(
        submitter.submit(submission("a")), submitter.submit(submission("a", tenant="other"))
    )

    assert one.job_id != other.job_id
    assert not other.duplicate


async def test_a_bad_row_fails_alone(
    engine: AsyncEngine, submitter: Submitter, relayed: Relayed
) -> None:
    await submitter.submit(submission("before"))
    wanted = [submission(f"k{n}") for n in range(60)]
    wanted[17] = submission("bad", '{"n": "\\u0000"}')
    wanted[43] = submission("worse", '{"n": 1e200000}')

    answers = await asyncio.gather(
        *(submitter.submit(one) for one in wanted), return_exceptions=True
    )

    refused = {n for n, one in enumerate(answers) if isinstance(one, Rejected)}
    assert refused == {17, 43}
    assert {one.status for one in answers if isinstance(one, Rejected)} == {422}
    assert len(await rows(engine, "SELECT id FROM filaviva.jobs")) == 59
    assert len(relayed.rows) == 59


async def test_concurrent_submissions_share_commits(submitter: Submitter, relayed: Relayed) -> None:
    await asyncio.gather(*(submitter.submit(submission(f"k{n}")) for n in range(1200)))

    assert len(relayed.batches) <= 4


async def test_a_lone_submission_does_not_wait_for_others(submitter: Submitter) -> None:
    await submitter.submit(submission("warm"))
    loop = asyncio.get_running_loop()
    started = loop.time()

    for n in range(20):
        await submitter.submit(submission(f"k{n}"))

    assert loop.time() - started < 1


async def test_a_lost_answer_to_commit_is_read_back(
    database: str, engine: AsyncEngine, relayed: Relayed
) -> None:
    thief = Thief(database)
    await thief.open()
    through = connect(thief.url, name="test-thief")
    submitter = Submitter(through, relayed)
    await submitter.submit(submission("warm"))
    thief.steal = 1

    kept = await asyncio.gather(*(submitter.submit(submission(f"k{n}")) for n in range(30)))

    assert thief.stolen == 1
    assert not any(one.duplicate for one in kept)
    stored = await rows(engine, "SELECT id FROM filaviva.jobs WHERE idempotency_key <> 'warm'")
    assert {row.id for row in stored} == {one.job_id for one in kept}
    # What the commit had not told us about is left to the sweep.
    (waiting,) = await rows(engine, "SELECT count(*) FROM filaviva.outbox")
    assert waiting[0] == 31
    await through.dispose()
    await thief.close()


async def test_a_short_outage_is_waited_out(database: str, relayed: Relayed) -> None:
    thief = Thief(database)
    await thief.open()
    through = connect(thief.url, name="test-thief")
    submitter = Submitter(through, relayed)
    await submitter.submit(submission("warm"))
    await thief.close()
    submitting = asyncio.create_task(submitter.submit(submission("a")))
    await asyncio.wait({submitting}, timeout=0.3)
    assert not submitting.done()

    await thief.open()

    assert not (await submitting).duplicate
    await through.dispose()
    await thief.close()


async def test_a_long_outage_is_told(database: str, relayed: Relayed) -> None:
    thief = Thief(database)
    await thief.open()
    through = connect(thief.url, name="test-thief")
    submitter = Submitter(through, relayed, limits=Limits(patience_seconds=0.5))
    await submitter.submit(submission("warm"))
    await thief.close()

    with pytest.raises(Unreachable):
        await submitter.submit(submission("a"))

    await through.dispose()


async def test_a_lost_connection_is_survived(engine: AsyncEngine, submitter: Submitter) -> None:
    await submitter.submit(submission("warm"))
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )

    answers = await asyncio.gather(*(submitter.submit(submission(f"k{n}")) for n in range(30)))

    assert len({one.job_id for one in answers}) == 30
    assert not any(one.duplicate for one in answers)


async def test_too_many_waiting_submissions_are_refused(
    engine: AsyncEngine, relayed: Relayed
) -> None:
    submitter = Submitter(engine, relayed, limits=Limits(waiting=10))

    answers = await asyncio.gather(
        *(submitter.submit(submission(f"k{n}")) for n in range(20)), return_exceptions=True
    )

    refused = [one for one in answers if isinstance(one, Rejected)]
    assert len(refused) == 10
    assert {(one.status, one.code, one.retry_after) for one in refused} == {(503, "overloaded", 1)}


async def test_exact_numbers_are_stored(engine: AsyncEngine, submitter: Submitter) -> None:
    exact = '{"a": 1180591620717411303424, "b": 0.100000000000000000000000000001, "c": 1.50}'

    await submitter.submit(submission("a", exact))

    (stored,) = await rows(engine, "SELECT payload::text FROM filaviva.jobs")
    assert stored[0] == exact
