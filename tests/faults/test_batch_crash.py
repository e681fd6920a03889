"""A batch ends and counts exactly though workers die between an item's commit and telling it."""

from collections import Counter
from typing import Any
from uuid import UUID

from fixtures.journey import Journey
from fixtures.waiting import until


async def submit(journey: Journey, items: list[dict[str, Any]]) -> UUID:
    """Submit a batch."""
    answer = await journey.call(
        "producer",
        "POST",
        "/v1/jobs",
        json={"type": "ledger.work", "items": items},
        headers={"Idempotency-Key": "batch"},
    )
    return UUID(answer.json()["jobId"])


async def test_the_sweeper_ends_the_batch_of_a_killed_worker(journey: Journey) -> None:
    await journey.start_all("producer", "retry-scheduler")
    worker = journey.start("worker", failpoints="complete.committed=exit")
    batch = await submit(journey, [{}])

    await until(lambda: not worker.alive, seconds=30)

    assert (await journey.final(batch, seconds=20))[batch] == "succeeded"
    assert await journey.value("SELECT count(*) FROM ledger.effects") == 1


async def test_mixed_items_are_counted_exactly_though_workers_die(journey: Journey) -> None:
    kinds = ({}, {"failures": 1}, {"failures": 9, "error": "terminal"}, {"seconds": 0.1})
    await journey.start_all("producer", "retry-scheduler")
    doomed = journey.start("worker", failpoints="follow.before=exit@2")
    batch = await submit(journey, [dict(kinds[n % 4]) for n in range(40)])
    await until(lambda: not doomed.alive, seconds=30)
    journey.start("worker")

    assert (await journey.final(batch, seconds=60))[batch] == "succeeded"

    rows = await journey.fetch("SELECT state FROM filaviva.jobs WHERE parent_id = $1", batch)
    assert Counter(row["state"] for row in rows) == {"succeeded": 30, "failed": 10}
    assert (
        await journey.value("SELECT progress->>'message' FROM filaviva.jobs WHERE id = $1", batch)
        == "30 of 40 completed"
    )
    assert await journey.value("SELECT count(*) FROM ledger.effects") == 30
    ended = (
        "SELECT count(DISTINCT data->>'index') FROM filaviva.job_events"
        " WHERE job_id = $1 AND kind = 'item' AND data->>'status' IN ('succeeded', 'failed')"
    )
    assert await journey.value(ended, batch) == 40
