"""The dlq-handler as a process: real broker, real database, killed at every step."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aio_pika
import httpx2
import pytest

from filaviva.broker.apply import apply
from filaviva.broker.messages import CONFIRMED, Outgoing
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.operations.dead_letters import Filter
from filaviva.operations.replay import ReplayRequest
from fixtures.amqp import drained, ready
from fixtures.dying import Morgue, Sent, event
from fixtures.journey import free_port
from fixtures.slack import SlackStandIn
from fixtures.waiting import until

TOPOLOGY = Topology()


class Handler:
    """One process, which a test starts, kills and starts again."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.environment = environment
        self._log = log
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, failpoints: str = "") -> None:
        """Start it, with failpoints, on ports of its own; wait until it is ready or dead."""
        metrics = free_port()
        ports = {"FILAVIVA_METRICS__PORT": metrics, "FILAVIVA_HTTP__PORT": free_port()}
        given = {name: str(port) for name, port in ports.items()}
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "filaviva_dlq_handler",
                env={**self.environment, **given, "FILAVIVA_FAILPOINTS": failpoints},
                stdout=log,
                stderr=log,
            )
        async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
            await until(lambda: self._ready_or_dead(client, metrics), seconds=40)

    async def _ready_or_dead(self, client: httpx2.AsyncClient, port: int) -> bool:
        assert self.process is not None
        if self.process.returncode is not None:
            return True
        try:
            return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
        except httpx2.HTTPError:
            return False

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; give the exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.died()

    async def died(self) -> int:
        """Wait for its end."""
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), 40)


class Site:
    """A broker, a database and handlers on them."""

    def __init__(self, morgue: Morgue, vhost: str, environment: dict[str, str], log: Path) -> None:
        self.morgue = morgue
        self.vhost = vhost
        self._environment = environment
        self._log = log
        self.handlers: list[Handler] = []

    async def handler(self, failpoints: str = "") -> Handler:
        """Start another handler."""
        handler = Handler(self._environment, self._log)
        self.handlers.append(handler)
        await handler.start(failpoints)
        return handler

    async def publish(self, *messages: Sent) -> None:
        """Publish these messages where they say."""
        publisher = Publisher(self.vhost)
        outgoing = [
            Outgoing(
                exchange=message.exchange,
                routing_key=message.routing_key,
                body=message.body,
                message_id=message.message_id or "",
                content_type=message.content_type or "",
            )
            for message in messages
        ]
        assert await publisher.publish(outgoing) == [CONFIRMED] * len(messages)
        await publisher.close()

    async def settled(self) -> bool:
        """Tell whether the dead letters are empty; with no consumer left, none is held either."""
        return await ready(self.vhost, TOPOLOGY.dead_letters) == 0

    async def lettered(self, count: int) -> None:
        """Wait until so many letters are filed."""

        async def enough() -> bool:
            return len(await self.morgue.letters()) >= count

        await until(enough, seconds=40)


@pytest.fixture
async def site(
    morgue: Morgue, database: str, vhost: str, slack: SlackStandIn, tmp_path: Path
) -> AsyncIterator[Site]:
    """Servers on which no handler runs yet."""
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    environment = {
        **os.environ,
        "FILAVIVA_POSTGRES__URL": database,
        "FILAVIVA_BROKER__URL": vhost,
        "FILAVIVA_SLACK__WEBHOOK_URL": slack.url,
        "NO_PROXY": "*",
    }
    site = Site(morgue, vhost, environment, tmp_path / "handler.log")
    yield site
    for handler in site.handlers:
        await handler.end(signal.SIGKILL)
    log = tmp_path / "handler.log"
    print(log.read_text()[-4000:] if log.exists() else "")  # noqa: T201 - shown when it fails


async def test_two_handlers_file_everything_once_and_end_cleanly(
    site: Site, slack: SlackStandIn
) -> None:
    jobs = [await site.morgue.failed() for _ in range(30)]
    deaths = [await site.morgue.dead(job) for job in jobs]
    copies = [await site.morgue.dead(job, copy=":2") for job in jobs]
    broken = [Sent(body=b"\x00broken") for _ in range(10)]
    first, second = await site.handler(), await site.handler()

    await site.publish(*deaths, *broken, *copies)
    await site.lettered(40)

    await until(lambda: len(slack.posts) == 2)
    assert await first.end() == 0
    assert await second.end() == 0
    assert await site.settled()
    assert len(await site.morgue.letters()) == 40
    assert sorted(group["count"] for group in await site.morgue.groups()) == [10, 30]


@pytest.mark.parametrize("point", ["dead.received", "dead.before_commit", "dead.committed"])
async def test_a_handler_killed_while_it_files_loses_and_doubles_nothing(
    site: Site, point: str
) -> None:
    deaths = [await site.morgue.dead(await site.morgue.failed()) for _ in range(5)]
    await site.publish(*deaths, Sent(body=b"broken"))

    killed = await site.handler(f"{point}=exit")
    assert await killed.died() == -signal.SIGKILL
    again = await site.handler()
    await site.lettered(6)

    assert await again.end() == 0
    assert await site.settled()
    assert len(await site.morgue.letters()) == 6
    assert sorted(group["count"] for group in await site.morgue.groups()) == [1, 5]


@pytest.mark.parametrize("point", ["replay.before_commit", "replay.committed"])
async def test_a_handler_killed_while_it_replays_sends_each_job_once(
    site: Site, point: str
) -> None:
    registry = await site.morgue.contract({})
    letters = [await site.morgue.letter_of() for _ in range(3)]
    request = ReplayRequest(
        letters=Filter(group=letters[0]["group_id"]), author="ana", reason="fixed"
    )
    await site.morgue.replay(request, registry)

    killed = await site.handler(f"{point}=exit")
    assert await killed.died() == -signal.SIGKILL
    again = await site.handler()

    async def all_there() -> bool:
        return await ready(site.vhost, TOPOLOGY.work("llm")) >= 3

    await until(all_there, seconds=40)
    assert await again.end() == 0
    sent = await drained(site.vhost, TOPOLOGY.work("llm"))
    names = {message.header.properties.message_id for message in sent}
    assert names == {f"{letter['job_id']}:2:1" for letter in letters}
    assert [row["epoch"] for row in await site.morgue.all("SELECT epoch FROM filaviva.jobs")] == [
        2, 2, 2,
    ]  # fmt: skip


@pytest.mark.parametrize(("point", "most"), [("notify.before_send", 1), ("notify.sent", 2)])
async def test_a_handler_killed_while_it_alerts_tells_it_all_the_same(
    site: Site, slack: SlackStandIn, point: str, most: int
) -> None:
    await site.morgue.letter_of()

    killed = await site.handler(f"{point}=exit")
    assert await killed.died() == -signal.SIGKILL
    await site.morgue.all("UPDATE filaviva.notifications SET next_try_at = clock_timestamp()")
    await site.morgue.all("UPDATE filaviva.notification_channels SET open_at = clock_timestamp()")
    await site.handler()

    async def told() -> bool:
        return [alert["state"] for alert in await site.morgue.alerts()] == ["sent"]

    await until(told)
    assert len(slack.posts) == most


async def test_slack_being_down_holds_nothing_else_up(site: Site, slack: SlackStandIn) -> None:
    slack.answers.extend([(503, {})] * 2)
    await site.handler()
    deaths = [await site.morgue.dead(await site.morgue.failed(f"broke {w}")) for w in "abc"]

    await site.publish(*deaths)
    await site.lettered(3)

    await until(lambda: len(slack.posts) == 3, seconds=40)
    assert len(slack.refused) == 2


@pytest.mark.broker
async def test_what_a_worker_rejects_says_where_it_died(site: Site) -> None:
    sent = Sent(body=event("who.knows.v1"), exchange=TOPOLOGY.jobs, message_id="m1")
    await site.publish(sent)
    await reject_one(site.vhost, TOPOLOGY.work("llm"))

    await site.handler()
    await site.lettered(1)

    (letter,) = await site.morgue.letters()
    assert (letter["reason"], letter["type"]) == ("unknown_type", "who.knows")
    assert (letter["source_queue"], letter["exchange"], letter["routing_key"]) == (
        TOPOLOGY.work("llm"), TOPOLOGY.jobs, "llm",
    )  # fmt: skip
    assert letter["raw"] == sent.body


@pytest.mark.broker
async def test_a_wake_up_at_its_delivery_limit_is_issued_again(site: Site) -> None:
    job = await site.morgue.queued()
    plain: Any = await site.morgue.wake_up(job, None)
    await site.publish(Sent(body=plain.body, exchange=TOPOLOGY.jobs, message_id=plain.message_id))
    await return_until_dead(site.vhost, TOPOLOGY.work("llm"))

    await site.handler()

    async def back() -> bool:
        return await ready(site.vhost, TOPOLOGY.work("llm")) == 1

    await until(back, seconds=40)
    (message,) = await drained(site.vhost, TOPOLOGY.work("llm"))
    assert message.header.properties.message_id == f"{job}:1:2"
    assert (await site.morgue.row(job))["delivery_limits"] == 1
    assert await site.morgue.letters() == []


async def test_an_event_without_a_subscriber_becomes_a_letter(site: Site) -> None:
    await site.handler()

    await site.publish(Sent(body=event(), exchange=TOPOLOGY.events, routing_key="order.placed.v1"))
    await site.lettered(1)

    (letter,) = await site.morgue.letters()
    assert (letter["reason"], letter["routing_key"]) == ("unroutable", "order.placed.v1")
    assert letter["exchange"] == TOPOLOGY.events


async def reject_one(vhost: str, queue: str) -> None:
    """Take one message as a worker would, and refuse it."""
    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        taken: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()
        source = await channel.get_queue(queue, ensure=False)
        await source.consume(taken.put)
        message = await asyncio.wait_for(taken.get(), 20)
        await message.reject(requeue=False)


async def return_until_dead(vhost: str, queue: str) -> None:
    """Give a message back as often as it comes, until the broker gives it up."""
    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        source = await channel.get_queue(queue, ensure=False)
        await source.consume(lambda message: message.reject(requeue=True))

        async def given_up() -> bool:
            return await ready(vhost, TOPOLOGY.dead_letters) == 1

        await until(given_up)
