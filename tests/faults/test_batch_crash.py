"""A batch ends though the worker dies between its item's commit and telling the batch."""

from uuid import UUID

import pytest

from fixtures.journey import Journey
from fixtures.waiting import until


@pytest.mark.parametrize("point", ["complete.committed", "follow.before@2"])
async def test_the_sweeper_ends_the_batch_of_a_killed_worker(journey: Journey, point: str) -> None:
    name, _, nth = point.partition("@")
    await journey.start_all("producer", "retry-scheduler")
    worker = journey.start("worker", failpoints=f"{name}=exit" + (f"@{nth}" if nth else ""))
    answer = await journey.call(
        "producer",
        "POST",
        "/v1/jobs",
        json={"type": "ledger.work", "items": [{"seconds": 0.3}]},
        headers={"Idempotency-Key": "batch"},
    )
    batch = UUID(answer.json()["jobId"])

    await until(lambda: not worker.alive, seconds=30)

    assert (await journey.final(batch, seconds=20))[batch] == "succeeded"
    assert await journey.value("SELECT count(*) FROM ledger.effects") == 1
