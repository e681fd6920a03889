"""A deploy breaks no message in flight: old and new side by side, on real servers."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import aio_pika
import httpx2
import pytest
import pytest_asyncio

from compatibility import releases
from filaviva.database import connect
from filaviva.operations.in_flight import in_flight
from filaviva.operations.setup import setup
from filaviva_contracts import Envelope
from fixtures.command_line import CommandLine, Result
from fixtures.journey import Journey, Service
from fixtures.slack import SlackStandIn
from fixtures.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    module_database: str, module_vhost: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator["Site"]:
    """Everything but workers, started once for the tests of this module."""
    with SlackStandIn() as slack:
        ground = Journey(module_database, module_vhost, tmp_path_factory.mktemp("site"), slack)
        await ground.set_up()
        await ground.start_all("retry-scheduler", "dlq-handler")
        await ground.start("producer", **previous_release(ground)).ready()
        key = {"Authorization": f"Bearer {ground.token}"}
        async with httpx2.AsyncClient(headers=key, verify=False, trust_env=False) as client:
            site = Site(ground, client)
            client.base_url = httpx2.URL(site.url)
            yield site
        ground.end()
        await ground.books.close()


class Site:
    """Deploy releases, submit to them, and look at what became of it."""

    def __init__(self, journey: Journey, client: httpx2.AsyncClient) -> None:
        self.journey = journey
        self._client = client

    async def publish(self, release: str) -> None:
        """Run the release's setup."""
        await setup(
            database_url=self.journey.database,
            broker_url=self.journey.vhost,
            app=getattr(releases, release),
        )

    async def worker(self, release: str) -> Service:
        """Start a worker of the release; the first ones on the Filaviva of then, where it is."""
        old = previous_release(self.journey) if release.endswith("_1") else {}
        app = f"compatibility.releases:{release}"
        worker = self.journey.start("worker", **old, FILAVIVA_APP=app)
        await worker.ready()
        return worker

    async def replace_the_producer(self) -> None:
        """Start one of this release, let clients go to it, and end the one before."""
        before = self.journey.now("producer")
        await self.journey.start("producer").ready()
        self._client.base_url = httpx2.URL(self.url)
        assert await asyncio.to_thread(before.stop) == 0

    @property
    def url(self) -> str:
        """Where the youngest producer is."""
        return f"http://127.0.0.1:{self.journey.now('producer').http_port}"

    async def gate(self, release: str) -> Result:
        """Ask whether the release may be deployed over what is in flight."""
        servers = {
            "FILAVIVA_POSTGRES__URL": self.journey.database,
            "FILAVIVA_BROKER__URL": self.journey.vhost,
        }
        cli = CommandLine(**servers)
        words = ("contracts", "in-flight", "--app", f"compatibility.releases:{release}", "--json")
        return await asyncio.to_thread(cli, *words)

    async def submit(self, kind: str, version: int, *urls: str) -> list[UUID]:
        """Submit one job for each address, as a client of this version does."""
        return list(await asyncio.gather(*(self._submit(kind, version, url) for url in urls)))

    async def _submit(self, kind: str, version: int, url: str) -> UUID:
        body = {"type": f"{kind}.extract", "version": version, "data": data(version, url)}

        async def accepted() -> UUID | None:
            answer = await self._client.post(
                "/v1/jobs", json=body, headers={"Idempotency-Key": url}
            )
            known = answer.status_code == 202
            assert known or answer.json()["code"] == "unknown_contract", answer.text
            return UUID(answer.json()["jobId"]) if known else None

        # The registry hears of a new version within moments.
        job: UUID = await until(accepted, seconds=20, every=0.05)
        return job

    async def announce(self, kind: str, version: int, *urls: str) -> None:
        """Publish one event for each address straight to the broker."""
        async with await aio_pika.connect(self.journey.vhost) as connection:
            channel = await connection.channel(publisher_confirms=True)
            exchange = await channel.get_exchange("filaviva.events", ensure=False)
            for url in urls:
                name = f"{kind}.extract.v{version}"
                text = json.dumps(data(version, url))
                event = Envelope(id=url, source="/files", type=name, data=text)
                await exchange.publish(aio_pika.Message(event.encode()), name)

    async def extracted(self, *jobs: UUID) -> dict[UUID, list[tuple[int, int]]]:
        """Give the effects of each job: which release had it, reading which version."""
        found: dict[UUID, list[tuple[int, int]]] = {job: [] for job in jobs}
        for row in await self.journey.fetch(
            "SELECT job_id, release, read_as FROM releases.extracted WHERE job_id = ANY($1)",
            list(jobs),
        ):
            found[UUID(bytes=row["job_id"].bytes)].append((row["release"], row["read_as"]))
        return found

    async def places(self, kind: str) -> dict[str, int]:
        """Count what is in flight, by place."""
        engine = connect(self.journey.database, name="test", size=1)
        async with engine.connect() as connection:
            found = await in_flight(connection)
        await engine.dispose()
        return {one.place: one.messages for one in found if one.type == f"{kind}.extract"}

    async def letters(self, kind: str) -> list[Any]:
        """Give the dead letters of a family."""
        return await self.journey.fetch(
            "SELECT * FROM filaviva.dead_letters WHERE type = $1 ORDER BY id", f"{kind}.extract"
        )


def previous_release(journey: Journey) -> dict[str, str]:
    """Give what starts the services of the release before: its packages come first.

    FILAVIVA_PREVIOUS_RELEASE names the folders, as what the wheels of a release unpack to.
    """
    folders = os.environ.get("FILAVIVA_PREVIOUS_RELEASE")
    return {"PYTHONPATH": f"{folders}:{journey.environment['PYTHONPATH']}"} if folders else {}


def data(version: int, url: str) -> dict[str, Any]:
    """Write the data of a version."""
    if version == 1:
        return {"documentUrl": url}
    document = {"document": {"url": url, "language": "pt"}}
    return document if version == 2 else {**document, "pages": 3}


def addresses(where: str, count: int) -> list[str]:
    """Name documents of one kind."""
    return [f"https://files/{where}/{number}" for number in range(count)]


async def test_what_the_first_release_left_behind_is_done_by_the_second(site: Site) -> None:
    await site.publish("archive_1")
    first = await site.worker("archive_1")
    broken = await site.submit("archive", 1, *addresses("bug", 3))
    busy = await site.submit("archive", 1, *addresses("busy", 3))

    async def left() -> bool:
        return await site.places("archive") == {"dead letter": 3, "pause": 3}

    await until(left, seconds=30, every=0.2)
    await asyncio.to_thread(first.stop)
    queued = await site.submit("archive", 1, *addresses("calm", 5))

    assert (await site.gate("archive_3")).code == 4
    assert (await site.gate("archive_2")).code == 0
    await site.publish("archive_2")
    second = await site.worker("archive_2")
    request = {"scope": {"filter": {"type": "archive.extract"}}, "reason": "the bug is gone"}
    replay = await site.journey.call("dlq-handler", "POST", "/v1/replays", json=request)
    assert replay.status_code == 202, replay.text

    jobs = [*broken, *busy, *queued]
    await site.journey.succeeded(*jobs)
    assert await site.extracted(*jobs) == {job: [(2, 2)] for job in jobs}
    row = await site.journey.row(queued[0])
    assert (row["version"], json.loads(row["payload"])) == (1, data(1, addresses("calm", 1)[0]))
    labels = {"type": "archive.extract", "from": "1", "to": "2"}
    assert await second.metric("filaviva_contract_upcasts_total", **labels) == 11
    assert (await site.gate("archive_3")).code == 0
    await asyncio.to_thread(second.stop)


async def test_a_version_before_its_worker_waits_with_one_alert_and_goes_on_by_itself(
    site: Site,
) -> None:
    await site.publish("future_2")
    await site.worker("future_2")
    await site.publish("future_3")
    told = len(site.journey.slack.posts)

    early = await site.submit("future", 3, *addresses("early", 4))

    async def parked() -> bool:
        rows = [await site.journey.row(job) for job in early]
        return {row["parked_reason"] for row in rows} == {"unsupported_version"}

    await until(parked, seconds=30)
    now = await site.submit("future", 2, *addresses("now", 4))
    await site.journey.succeeded(*now)
    await until(lambda: len(site.journey.slack.posts) > told, seconds=20)
    await site.worker("future_3")

    await site.journey.succeeded(*early)
    assert await site.extracted(*early) == {job: [(3, 3)] for job in early}

    async def closed() -> bool:
        return {row["status"] for row in await site.letters("future")} == {"resolved"}

    await until(closed, seconds=20)
    assert len(site.journey.slack.posts) == told + 1
    assert len(await site.letters("future")) == 4
    rows = [await site.journey.row(job) for job in early]
    assert {row["attempt"] for row in rows} == {1}


async def test_an_event_before_its_handler_waits_and_goes_on_by_itself(site: Site) -> None:
    await site.publish("notice_2")
    await site.worker("notice_2")
    told = len(site.journey.slack.posts)
    urls = addresses("noticed", 3)

    await site.announce("notice", 3, *urls)

    async def lettered() -> bool:
        return len(await site.letters("notice")) == 3

    await until(lettered, seconds=30)
    assert {row["reason"] for row in await site.letters("notice")} == {"unsupported_version"}
    await site.publish("notice_3")
    await site.worker("notice_3")

    async def noted() -> list[Any]:
        return await site.journey.fetch(
            "SELECT read_as FROM releases.extracted WHERE url = ANY($1)", urls
        )

    await until(noted, seconds=30)
    await until(lambda: len(site.journey.slack.posts) > told, seconds=20)

    async def all_done() -> bool:
        letters = {row["status"] for row in await site.letters("notice")}
        return letters == {"resolved"} and len(await noted()) == 3

    await until(all_done, seconds=30)
    assert {row["read_as"] for row in await noted()} == {3}
    assert len(site.journey.slack.posts) == told + 1


_BREATH = 0.05


class Traffic:
    """A client that keeps submitting one version until it is told to stop."""

    def __init__(self, site: Site, version: int) -> None:
        self.jobs: list[UUID] = []
        self._site = site
        self._version = version
        self._numbers: Iterator[int] = iter(range(10_000))

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Submit all the while."""
        stop = asyncio.Event()
        flow = asyncio.create_task(self._flow(stop))
        yield
        stop.set()
        await flow

    async def _flow(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number = next(self._numbers)
            where = "busy" if number % 10 == 0 else "calm"
            names = [f"https://v{self._version}/{where}/{number}/{n}" for n in range(5)]
            self.jobs += await self._site.submit("rolling", self._version, *names)
            await asyncio.sleep(_BREATH)  # a client with other things to do, not a flood

    async def more(self, count: int = 25) -> None:
        """Wait until it has submitted so many more."""
        goal = len(self.jobs) + count
        await until(lambda: len(self.jobs) >= goal, seconds=60)


async def test_expand_deploy_contract_under_load_leaves_no_dead_letter(site: Site) -> None:
    await site.publish("rolling_1")
    first = await site.worker("rolling_1")
    old, new = Traffic(site, 1), Traffic(site, 2)

    async with old.flowing():
        await old.more()
        await site.publish("rolling_2")
        second = await site.worker("rolling_2")
        async with new.flowing():  # old and new, of workers and of clients, side by side
            await new.more()
            assert await asyncio.to_thread(first.stop) == 0
            await old.more()
    async with new.flowing():
        await site.journey.succeeded(*old.jobs)
        assert (await site.gate("rolling_3")).code == 0
        await site.publish("rolling_3")
        await site.worker("rolling_3")
        await site.replace_the_producer()
        await new.more()
        assert await asyncio.to_thread(second.stop) == 0
        await new.more()

    jobs = [*old.jobs, *new.jobs]
    await site.journey.succeeded(*jobs)
    effects = await site.extracted(*jobs)
    assert {len(each) for each in effects.values()} == {1}
    assert {read_as for job in old.jobs for _, read_as in effects[job]} == {1, 2}
    assert {release for each in effects.values() for release, _ in each} == {1, 2, 3}
    assert await site.letters("rolling") == []
