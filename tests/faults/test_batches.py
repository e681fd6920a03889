"""Batches on real services: repeated in part, stopped early, never too many at once."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from fixtures.journey import Journey
from fixtures.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def submit(ground: Journey, kind: str, items: list[Any], **policy: Any) -> UUID:
    """Submit a batch."""
    answer = await ground.call(
        "producer",
        "POST",
        "/v1/jobs",
        json={"type": f"ledger.{kind}", "items": items, **policy},
        headers={"Idempotency-Key": uuid4().hex},
    )
    assert answer.status_code == 202, answer.text
    return UUID(answer.json()["jobId"])


async def items_of(ground: Journey, batch: UUID) -> list[dict[str, Any]]:
    """Give its items as the API does."""
    answer = await ground.call("producer", "GET", f"/v1/jobs/{batch}/items?limit=100")
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def message(ground: Journey, batch: UUID) -> str:
    """Give its progress in words."""
    answer = await ground.call("producer", "GET", f"/v1/jobs/{batch}")
    return str(answer.json()["progress"]["message"])


async def effects(ground: Journey, batch: UUID) -> set[tuple[Any, ...]]:
    """Give the effects of its items, row by row."""
    rows = await ground.fetch(
        "SELECT e.id, e.key, j.item_index FROM ledger.effects e JOIN filaviva.jobs j"
        " ON j.id = e.job_id WHERE j.parent_id = $1",
        batch,
    )
    return {tuple(row) for row in rows}


async def test_three_of_ten_are_corrected_and_seven_effects_stay_as_they_were(
    standing: Journey,
) -> None:
    bad = (2, 5, 8)
    batch = await submit(standing, "correctable", [{"good": n not in bad} for n in range(10)])
    assert (await standing.final(batch))[batch] == "succeeded"
    assert await message(standing, batch) == "7 of 10 completed"
    before = await effects(standing, batch)
    assert len(before) == 7
    letters = (
        "SELECT count(*) FROM filaviva.dead_letters l JOIN filaviva.jobs j ON j.id = l.job_id"
        " WHERE j.parent_id = $1 AND l.status = $2"
    )
    await until(lambda: _is(standing, letters, 3, batch, "open"))

    corrected = [{"index": n, "data": {"good": True}} for n in bad]
    answer = await standing.call(
        "producer", "POST", f"/v1/jobs/{batch}/retry", json={"items": corrected}
    )

    assert (answer.status_code, answer.json()["retried"]) == (202, 3)
    await until(lambda: _is(standing, _PROGRESS, "10 of 10 completed", batch))
    assert (await standing.row(batch))["state"] == "succeeded"
    after = await effects(standing, batch)
    assert before < after
    assert {row[2] for row in after - before} == set(bad)
    await until(lambda: _is(standing, letters, 3, batch, "resolved"))
    attempts = [item["attempts"] for item in await items_of(standing, batch)]
    assert attempts == [2 if n in bad else 1 for n in range(10)]


async def test_a_replayed_dead_letter_opens_its_batch_again(standing: Journey) -> None:
    batch = await submit(
        standing, "correctable", [{"good": n == 0, "why": "replay"} for n in range(2)]
    )
    await standing.final(batch)
    letter = await until(
        lambda: standing.value(
            "SELECT l.id FROM filaviva.dead_letters l JOIN filaviva.jobs j ON j.id = l.job_id"
            " WHERE j.parent_id = $1",
            batch,
        )
    )

    answer = await standing.call(
        "dlq-handler",
        "POST",
        "/v1/replays",
        json={
            "scope": {"ids": [str(letter)]},
            "patch": [{"op": "replace", "path": "/good", "value": True}],
            "reason": "corrected",
        },
    )

    assert answer.status_code == 202, answer.text
    await until(lambda: _is(standing, _PROGRESS, "2 of 2 completed", batch))
    rows = await standing.fetch(
        "SELECT data->>'status' FROM filaviva.job_events WHERE job_id = $1 AND kind = 'item'"
        " AND data->>'index' = '1' ORDER BY id",
        batch,
    )
    told = [row[0] for row in rows]
    assert told.index("failed") < told.index("succeeded") == len(told) - 1
    assert (await standing.row(batch))["state"] == "succeeded"


async def test_no_more_items_run_at_once_than_allowed(standing: Journey) -> None:
    batch = await submit(
        standing, "work", [{"seconds": 0.05, "failures": int(n % 3 == 0)} for n in range(15)],
        concurrency=4,
    )  # fmt: skip

    assert (await standing.final(batch))[batch] == "succeeded"

    rows = await standing.fetch(
        "SELECT a.started_at, a.finished_at FROM filaviva.attempts a JOIN filaviva.jobs j"
        " ON j.id = a.job_id WHERE j.parent_id = $1",
        batch,
    )
    assert len(rows) == 20
    moments = [(row[0], 1) for row in rows] + [(row[1], -1) for row in rows]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    assert 1 < most <= 4


async def test_the_first_failure_stops_the_rest_where_that_is_wanted(standing: Journey) -> None:
    items: list[dict[str, Any]] = [{"failures": 9, "error": "terminal"}]
    items += [{"seconds": 30}] * 5
    batch = await submit(standing, "work", items, failFast=True)

    assert (await standing.final(batch))[batch] == "failed"

    states = [item["status"] for item in await items_of(standing, batch)]
    assert states == ["failed", *["canceled"] * 5]


_PROGRESS = "SELECT progress->>'message' FROM filaviva.jobs WHERE id = $1"


async def _is(ground: Journey, statement: str, wanted: Any, *arguments: Any) -> bool:
    return bool(await ground.value(statement, *arguments) == wanted)
