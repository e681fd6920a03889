"""Ten clients at once, jobs of every fate: each ends as it must, counted exactly."""

import asyncio
from collections import Counter

import pytest

from filaviva import Client
from fixtures.journey import Journey
from fixtures.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

CLIENTS = 10
FATES = ("good", "good", "good", "good", "good", "good", "later", "later", "bad", "hopeless")
AT_ONCE = 30  # of one client


@pytest.mark.parametrize("each", [100, pytest.param(1000, marks=pytest.mark.soak)])
async def test_ten_clients_with_jobs_of_mixed_fate_end_with_exact_counts(
    standing: Journey, each: int
) -> None:
    url = f"http://127.0.0.1:{standing.now('producer').http_port}"
    before = await counted(standing)

    await asyncio.gather(*(submit_all(url, standing.token, n, each) for n in range(CLIENTS)))

    async def ended() -> bool:
        return sum((await counted(standing)).values()) - sum(before.values()) == CLIENTS * each

    await until(ended, seconds=500, every=0.25)
    tenth = CLIENTS * each // len(FATES)
    assert await counted(standing) - before == Counter(
        {
            ("good", "succeeded", 1, 1): 6 * tenth,
            ("later", "succeeded", 2, 1): 2 * tenth,
            ("bad", "failed", 1, 0): tenth,
            ("hopeless", "failed", 2, 0): tenth,
        }
    )


async def submit_all(url: str, key: str, number: int, each: int) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async with Client(url, key) as client:

        async def submit(n: int) -> None:
            async with places:
                fate = FATES[n % len(FATES)]
                await client.submit("ledger.tally", {"fate": fate}, subject=f"client-{number}")

        await asyncio.gather(*(submit(n) for n in range(each)))


async def counted(standing: Journey) -> Counter[tuple[str, str, int, int]]:
    """Count ended jobs by (fate, state, attempts, effects); a failed one with its dead letter."""
    rows = await standing.books.fetch(
        """
        SELECT payload->>'fate' AS fate, state, attempt,
            (SELECT count(*) FROM ledger.effects WHERE job_id = jobs.id) AS effects
        FROM filaviva.jobs AS jobs
        WHERE type = 'ledger.tally' AND (state = 'succeeded' OR state = 'failed' AND (
            SELECT count(*) FROM filaviva.dead_letters WHERE job_id = jobs.id) = 1)
        """
    )
    return Counter(tuple(row) for row in rows)
