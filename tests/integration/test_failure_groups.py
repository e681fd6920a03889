"""One group for each cause, one alert for each episode, on a real database."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from filaviva.errors import NotFound, Rejected
from filaviva.operations import failure_groups
from filaviva.operations.discard import discard
from filaviva.operations.reach import EVERYTHING, Reach
from fixtures.dying import Morgue


async def fails(morgue: Morgue, message: str = "it broke", **columns: Any) -> None:
    await morgue.letter_of(message, **columns)


async def group(morgue: Morgue) -> dict[str, Any]:
    (row,) = await morgue.groups()
    return row


async def resolve(morgue: Morgue, group_id: UUID, reach: Reach = EVERYTHING) -> dict[str, Any]:
    async with morgue.engine.begin() as connection:
        return await failure_groups.resolve(connection, group_id, author="ana", reach=reach)


async def snooze(morgue: Morgue, group_id: UUID, seconds: float = 60) -> dict[str, Any]:
    async with morgue.engine.begin() as connection:
        return await failure_groups.snooze(connection, group_id, author="ana", seconds=seconds)


async def test_failures_of_one_cause_are_one_group_and_one_alert(morgue: Morgue) -> None:
    for number in range(5):
        await fails(morgue, f"request req_1234{number} took {number} s")

    row = await group(morgue)
    assert (row["count"], str(row["cost_usd"]), row["episode"]) == (5, "1.25", 1)
    assert row["message"] == "request <id> took <n> s"
    assert row["frames"] == ["app.py:run", "app.py:call"]
    assert len(await morgue.alerts()) == 1


async def test_other_causes_have_groups_of_their_own(morgue: Morgue) -> None:
    await fails(morgue, "it broke")
    await fails(morgue, "it broke", type="'order.place'")
    await fails(morgue, "it broke otherwise")

    assert len(await morgue.groups()) == 3
    assert len(await morgue.alerts()) == 3


async def test_a_failure_after_resolve_opens_the_next_episode(morgue: Morgue) -> None:
    await fails(morgue)
    await resolve(morgue, (await group(morgue))["id"])

    await fails(morgue)

    row = await group(morgue)
    assert (row["state"], row["episode"], row["count"]) == ("open", 2, 1)
    assert [alert["episode"] for alert in await morgue.alerts()] == [1, 2]


async def test_a_snoozed_group_is_silent_until_its_time_is_over(morgue: Morgue) -> None:
    await fails(morgue)
    await snooze(morgue, (await group(morgue))["id"])
    await fails(morgue)
    silent = await group(morgue)
    await morgue.all("UPDATE filaviva.failure_groups SET snoozed_until = clock_timestamp()")

    await fails(morgue)

    assert (silent["state"], silent["episode"], silent["count"]) == ("snoozed", 1, 2)
    row = await group(morgue)
    assert (row["state"], row["episode"], row["count"]) == ("open", 2, 1)
    assert len(await morgue.alerts()) == 2


async def test_the_group_is_resolved_when_its_last_letter_is_closed(morgue: Morgue) -> None:
    first, second = await morgue.letter_of(), await morgue.letter_of()

    states = []
    for letter in (first, second):
        async with morgue.engine.begin() as connection:
            await discard(connection, letter["id"], author="ana", reason="not needed")
        states.append((await group(morgue))["state"])

    assert states == ["open", "resolved"]


async def test_failures_and_resolutions_at_once_neither_deadlock_nor_hide_one(
    morgue: Morgue,
) -> None:
    letters = [await morgue.letter_of(f"broke {word}") for word in "abcdefgh"]

    async def close(letter: dict[str, Any]) -> None:
        async with morgue.engine.begin() as connection:
            await discard(connection, letter["id"], author="ana", reason="x")

    jobs = [await morgue.failed(f"broke {word}") for word in reversed("abcdefgh")]
    deaths = [await morgue.dead(job) for job in jobs]
    await asyncio.gather(*[close(letter) for letter in letters], morgue.file(*deaths))

    assert {row["state"] for row in await morgue.groups()} == {"open"}


async def test_discarding_twice_is_refused(morgue: Morgue) -> None:
    letter = await morgue.letter_of()

    async def close() -> None:
        async with morgue.engine.begin() as connection:
            await discard(connection, letter["id"], author="ana", reason="x")

    results = await asyncio.gather(close(), close(), return_exceptions=True)

    (refused,) = [result for result in results if result is not None]
    assert isinstance(refused, Rejected)
    assert refused.status == 409
    (entry,) = await morgue.all("SELECT * FROM filaviva.audit_log")
    assert (entry["action"], entry["author"]) == ("dead_letter.discarded", "ana")


async def test_a_resolved_group_cannot_be_snoozed(morgue: Morgue) -> None:
    await fails(morgue)
    group_id = (await group(morgue))["id"]
    await resolve(morgue, group_id)

    with pytest.raises(Rejected, match="resolved already"):
        await snooze(morgue, group_id)


@pytest.mark.parametrize("seconds", [0, -1, 10**9])
async def test_a_snooze_has_an_end(morgue: Morgue, seconds: float) -> None:
    await fails(morgue)

    with pytest.raises(Rejected, match="expected more than 0"):
        await snooze(morgue, (await group(morgue))["id"], seconds)


async def test_a_tenant_sees_its_own_letters_of_a_group_and_cannot_silence_others(
    morgue: Morgue,
) -> None:
    await fails(morgue)
    await fails(morgue, tenant="'other'")
    group_id = (await group(morgue))["id"]
    mine, nobodys = Reach(tenant="other", foreign=False), Reach(tenant="third", foreign=False)

    async with morgue.engine.connect() as connection:
        (seen,) = await failure_groups.page(connection, reach=mine)
        assert await failure_groups.page(connection, reach=nobodys) == []
        with pytest.raises(NotFound):
            await failure_groups.get(connection, group_id, reach=nobodys)

    assert (seen["count"], seen["open"], seen["costUsd"]) == (1, 1, "0.25")
    with pytest.raises(Rejected, match="other tenants"):
        await resolve(morgue, group_id, mine)
