"""Pauses between attempts: as long as the formula says, never shorter, hardly longer."""

import asyncio
from uuid import UUID

import pytest

from fixtures.journey import Journey
from fixtures.ledger_app import POLICY
from fixtures.waiting import until

pytestmark = [pytest.mark.alone, pytest.mark.timeout(180)]

PAIRS = """
SELECT failed.number, failed.retry_after, failed.pause_seconds AS pause,
    extract(epoch FROM next.started_at - failed.finished_at)::float8 AS waited
FROM filaviva.attempts AS failed JOIN filaviva.attempts AS next
    ON next.job_id = failed.job_id AND next.number = failed.number + 1
WHERE failed.job_id = ANY($1::uuid[]) ORDER BY 1
"""


@pytest.mark.broker
async def test_every_pause_follows_the_formula_and_ends_on_time(journey: Journey) -> None:
    await journey.start_all()
    # One after another: what is measured is the pause, not a burst on two cores.
    jobs: list[UUID] = []
    for n in range(15):
        jobs.append(await journey.submit(failures=1 + n % 3))
        await asyncio.sleep(0.2)
    jobs.append(await journey.submit(failures=6, maxAttempts=7))

    await journey.succeeded(*jobs, seconds=90)

    pauses = await journey.fetch(PAIRS, jobs)
    assert len(pauses) == 5 * (1 + 2 + 3) + 6
    for pause in pauses:
        least = min(POLICY.base * 2 ** (pause["number"] - 1), POLICY.cap)
        assert least <= pause["pause"] <= least + POLICY.jitter
        assert pause["waited"] >= pause["pause"], "never early"
    late = sorted(pause["waited"] - pause["pause"] for pause in pauses)
    assert late[int(len(late) * 0.95) - 1] <= 0.3, [round(each, 2) for each in late]


async def test_retry_after_is_never_undercut(journey: Journey) -> None:
    await journey.start_all()
    jobs = [await journey.submit(failures=1, retryAfter=seconds) for seconds in (0.05, 1.7, 8)]

    await journey.succeeded(*jobs)

    for pause in await journey.fetch(PAIRS, jobs):
        assert pause["pause"] >= max(pause["retry_after"], POLICY.base)
        assert pause["waited"] >= pause["pause"]


async def test_a_pause_of_an_hour_blocks_none_of_a_second(journey: Journey) -> None:
    await journey.start_all()
    patient = await journey.submit(failures=1, retryAfter=3600)

    async def pausing() -> bool:
        return (await journey.row(patient))["failures"] == 1

    await until(pausing, seconds=20)
    quick = [await journey.submit(failures=1, retryAfter=1) for _ in range(5)]

    await journey.succeeded(*quick, seconds=30)

    assert all(pause["waited"] < 4 for pause in await journey.fetch(PAIRS, quick))
    assert (await journey.row(patient))["state"] == "queued"
