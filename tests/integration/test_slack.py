"""Alerts on their way to Slack: real rows, a real HTTP server that can refuse them."""

import asyncio
import time
from collections.abc import AsyncIterator

import httpx2
import pytest
from pydantic import SecretStr

from filaviva.errors import ConfigurationError
from filaviva.telemetry.metrics import Metrics
from filaviva_dlq_handler.slack import Slack, Target
from fixtures.dying import Morgue
from fixtures.slack import SlackStandIn
from fixtures.waiting import until


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(verify=False, timeout=2, trust_env=False) as client:
        yield client


def slack_of(morgue: Morgue, url: str | None, *, pace: float = 0.0) -> Slack:
    secret = None if url is None else SecretStr(url)
    target = Target(secret, environment="test", pace_seconds=pace)
    return Slack(morgue.engine, target, Metrics())


async def fails(morgue: Morgue, *words: str) -> None:
    """File one failed job for each cause."""
    jobs = [await morgue.failed(f"broke {word}") for word in words]
    await morgue.file(*[await morgue.dead(job) for job in jobs])


async def states(morgue: Morgue) -> list[str]:
    return [alert["state"] for alert in await morgue.alerts()]


async def test_a_group_is_told_once_and_marked(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, "a", "a", "a")
    sender = slack_of(morgue, slack.url)

    assert [await sender.step(client) for _ in range(3)] == [1, 0, 0]

    (post,) = slack.posts
    assert post["text"].startswith("New failure: invoice.extract - ServerError (test): broke a")
    assert {block["type"] for block in post["blocks"]} == {"header", "section", "context"}
    (row,) = await morgue.alerts()
    assert (row["state"], row["tries"]) == ("sent", 1)
    assert "filaviva dlq show" in row["text"]


async def test_an_outage_loses_nothing_and_backs_off(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, "a", "b")
    nowhere = slack_of(morgue, "http://127.0.0.1:1/services/x", pace=0.05)
    pauses = []
    for _ in range(3):
        await until(lambda: _tried(nowhere, client, morgue, len(pauses) + 1))
        (channel,) = await morgue.all(
            "SELECT failures, error, extract(epoch FROM open_at - clock_timestamp()) AS pause"
            " FROM filaviva.notification_channels"
        )
        pauses.append(channel["pause"])

    assert channel["failures"] == 3
    assert "secret" not in channel["error"]
    assert pauses[0] < pauses[1] < pauses[2]
    sender = slack_of(morgue, slack.url)
    await until(lambda: _all_sent(sender, client, morgue))
    assert len(slack.posts) == 2


async def _tried(sender: Slack, client: httpx2.AsyncClient, morgue: Morgue, times: int) -> bool:
    await sender.step(client)
    (channel,) = await morgue.all("SELECT failures FROM filaviva.notification_channels")
    return bool(channel["failures"] >= times)


async def _all_sent(sender: Slack, client: httpx2.AsyncClient, morgue: Morgue) -> bool:
    await sender.step(client)
    return set(await states(morgue)) == {"sent"}


async def test_retry_after_closes_the_channel_for_all(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, "a", "b")
    slack.answers.append((429, {"Retry-After": "2"}))
    sender, other = slack_of(morgue, slack.url), slack_of(morgue, slack.url)
    began = time.monotonic()

    assert await sender.step(client) == 0
    assert await other.step(client) == 0
    await until(lambda: _all_sent(other, client, morgue))

    assert time.monotonic() - began >= 2
    assert len(slack.refused) == 1
    assert len(slack.posts) == 2


@pytest.mark.parametrize("status", [404, 403, 410, 500, 503, 302])
async def test_whatever_slack_answers_the_alert_is_kept(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient, status: int
) -> None:
    await fails(morgue, "a")
    slack.answers.append((status, {}))
    sender = slack_of(morgue, slack.url, pace=0.01)

    assert await sender.step(client) == 0
    assert await states(morgue) == ["waiting"]
    await until(lambda: _all_sent(sender, client, morgue))


async def test_a_message_that_slack_does_not_take_goes_without_blocks_and_blocks_nobody(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, "a")
    await fails(morgue, "b")
    slack.answers.extend([(400, {}), (400, {})])
    sender = slack_of(morgue, slack.url)

    async def settled() -> bool:
        await sender.step(client)
        return "waiting" not in await states(morgue)

    await until(settled)

    assert "blocks" not in slack.refused[-1]
    assert sorted(await states(morgue)) == ["dropped", "sent"]


async def test_more_than_twenty_new_groups_are_one_digest(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, *[f"{a}{b}" for a in "abcde" for b in "vwxyz"])

    assert await slack_of(morgue, slack.url).step(client) == 25

    (post,) = slack.posts
    assert post["text"].startswith("25 new failures")
    assert set(await states(morgue)) == {"sent"}


async def test_the_pace_holds_across_processes(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, "a", "b", "c")
    senders = [slack_of(morgue, slack.url, pace=0.4) for _ in range(3)]
    began = time.monotonic()

    async def all_sent() -> bool:
        await asyncio.gather(*[sender.step(client) for sender in senders])
        return set(await states(morgue)) == {"sent"}

    await until(all_sent)

    assert time.monotonic() - began >= 0.8
    assert len(slack.posts) == 3


async def test_a_group_snoozed_before_its_turn_is_not_told(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, "a")
    await morgue.all(
        "UPDATE filaviva.failure_groups SET state = 'snoozed',"
        " snoozed_until = clock_timestamp() + interval '1 hour'"
    )

    await slack_of(morgue, slack.url).step(client)

    assert slack.posts == []
    assert await states(morgue) == ["dropped"]


async def test_without_a_webhook_the_text_is_kept_here(
    morgue: Morgue, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, "a")

    assert await slack_of(morgue, None).step(client) == 1

    (row,) = await morgue.alerts()
    assert (row["state"], "no webhook configured" in row["error"]) == ("dropped", True)
    assert "broke a" in row["text"]


async def test_a_sender_that_died_before_its_mark_is_repeated(
    morgue: Morgue, slack: SlackStandIn, client: httpx2.AsyncClient
) -> None:
    await fails(morgue, "a")
    slack.answers.append((500, {}))
    sender = slack_of(morgue, slack.url)
    await sender.step(client)
    await morgue.all(
        "UPDATE filaviva.notifications SET next_try_at = clock_timestamp() + interval '30 s'"
    )
    assert await slack_of(morgue, slack.url).step(client) == 0

    await morgue.all("UPDATE filaviva.notifications SET next_try_at = clock_timestamp()")

    await until(lambda: _all_sent(sender, client, morgue))


async def test_a_webhook_that_is_no_url_ends_the_start(morgue: Morgue) -> None:
    with pytest.raises(ConfigurationError, match="FILAVIVA_SLACK__WEBHOOK_URL"):
        slack_of(morgue, "hooks.slack.com/x")
