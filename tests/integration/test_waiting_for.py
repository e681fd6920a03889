"""A job says in words why it does not run yet."""

from uuid import UUID

import pytest

from filaviva.operations import jobs as operations
from filaviva.operations import shapes
from filaviva.operations.jobs import Filters, Reach
from fixtures.retrying import Jobs


async def shown(jobs: Jobs, job: UUID, language: str = "en") -> str | None:
    async with jobs.engine.connect() as connection:
        found = await operations.get(connection, job, Reach("default"))
    words: str | None = shapes.job(found, language)["waitingFor"]
    return words


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "a free worker"),
        ({"not_before": "clock_timestamp() + interval '1 h'"}, "its time"),
        ({"not_before": "clock_timestamp() - interval '1 h'"}, "a free worker"),
        ({"parked_reason": "'limit'"}, "a place: as many jobs of its tenant or subject run"),
        ({"parked_reason": "'concurrency'"}, "other items of its batch to end"),
        ({"parked_reason": "'unsupported_version'"}, "a worker that reads its version"),
    ],
)
async def test_a_queued_job_names_what_it_waits_for(
    jobs: Jobs, columns: dict[str, str], words: str
) -> None:
    job = await jobs.queued(**columns)

    assert (await shown(jobs, job) or "").startswith(words)


async def test_a_job_in_line_waits_for_its_turn_in_each_language_and_in_lists(jobs: Jobs) -> None:
    job = await jobs.queued()
    await jobs.all(
        "INSERT INTO filaviva.turns (queue, tenant, priority, job_id, epoch)"
        " VALUES ('llm', 'default', 4, :id, 1)",
        id=job,
    )

    assert (await shown(jobs, job) or "").startswith("its turn")
    assert (await shown(jobs, job, "pt") or "").startswith("a sua vez")
    async with jobs.engine.connect() as connection:
        (found,) = await operations.newest(
            connection, Reach("default"), Filters(), before=None, limit=10
        )
    assert shapes.job_summary(found)["waitingFor"].startswith("its turn")


async def test_who_runs_has_ended_or_is_a_batch_waits_for_nothing(jobs: Jobs) -> None:
    for job in (
        await jobs.running(),
        await jobs.queued(state="'succeeded'"),
        await jobs.queued(parked_reason="'items'"),
    ):
        assert await shown(jobs, job) is None
