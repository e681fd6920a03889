"""The programs of docs/howto/publish-from-another-language.md do what the page says."""

import asyncio
import json
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aio_pika
import asyncpg
import httpx2
import pytest

from fixtures.broker import Broker
from fixtures.journey import Journey, free_port
from fixtures.management import Management
from fixtures.thief import Thief
from fixtures.waiting import until

PAGE = Path(__file__).parents[2] / "docs/howto/publish-from-another-language.md"
LINKS = {"FILAVIVA_LINKS__SECRET": "a secret of more than thirty-two characters"}
CLI = [sys.executable, "-m", "filaviva.cli"]

pytestmark = [pytest.mark.node, pytest.mark.timeout(180)]


def program(name: str) -> str:
    """The code after the comment that names it."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"<!-- [^>]*\b{name} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found is not None, name
    return found[1]


async def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, command
    return output.decode()


@asynccontextmanager
async def running(name: str, folder: Path, environment: dict[str, str]) -> AsyncIterator[None]:
    """A program of the page for as long as the block runs; it ends when it is asked to."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec env {program(name)}", cwd=folder, env=environment,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0


async def look_at_the_page(folder: Path, environment: dict[str, str]) -> None:
    """Open the page of contracts by the link that the page makes."""
    command = program("link").replace("filaviva", shlex.join(CLI), 1)
    address = await run(["sh", "-c", command], folder, environment)
    async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
        page = await client.get(address.strip())
    assert page.status_code == 200
    assert "invoice.issued.v1" in page.text


def user_of_the_page(broker: Broker, vhost: str) -> str:
    """Make the broker's user with the rights that the page gives it; give its URL."""
    management, parts = Management(broker.management_url), urlsplit(vhost)
    rights = program("rights")
    _, _, _, _, name, configure, write, read = shlex.split(rights)
    management.call("PUT", f"/api/users/{name}", {"password": "secret", "tags": ""})
    allowed = {"configure": configure, "write": write, "read": read}
    management.call("PUT", f"/api/permissions{parts.path}/{name}", allowed)
    return parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()


async def cut_off(broker: Broker) -> bool:
    """Close every connection of the page's user, as a restart of the broker would."""
    management = Management(broker.management_url)
    found = management.call("GET", "/api/connections")
    names = [connection["name"] for connection in found if connection.get("user") == "books"]
    for name in names:
        management.call("DELETE", f"/api/connections/{quote(name)}")
    return bool(names)


def event(number: str, name: str) -> bytes:
    attributes = {"specversion": "1.0", "id": name, "source": "/billing"}
    return json.dumps(
        {**attributes, "type": "invoice.issued.v1", "data": {"number": number}}
    ).encode()


async def publish(vhost: str, body: bytes) -> None:
    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange("filaviva.events", ensure=False)
        await exchange.publish(aio_pika.Message(body), "invoice.issued.v1")


@dataclass
class Ground:
    """The stack of the page, and the database of its own service."""

    journey: Journey
    broker: Broker
    folder: Path
    environment: dict[str, str]
    service: asyncpg.Connection
    database: Thief

    async def sh(self, name: str) -> str:
        """Run a program of the page to its end."""
        return await run(["sh", "-c", program(name)], self.folder, self.environment)

    async def found(self, statement: str, expected: Any) -> None:
        """Wait until the service's database has it."""

        async def has() -> bool:
            return bool(await self.service.fetchval(statement) == expected)

        await until(has)

    async def letters(self) -> list[str]:
        """Why the page's worker refused what it refused."""
        found = await self.journey.fetch(
            "SELECT reason FROM filaviva.dead_letters WHERE source_queue = 'books.invoices'"
            " ORDER BY created_at"
        )
        return [letter["reason"] for letter in found]


@pytest.fixture
async def ground(
    journey: Journey, broker: Broker, typescript: Path, empty_database: str, tmp_path: Path
) -> AsyncIterator[Ground]:
    """The services with the page's app, and what its programs find in their environment."""
    (tmp_path / "shop.py").write_text(program("app"))
    port, database = free_port(), Thief(empty_database)
    await database.open()
    own = {
        **LINKS,
        "PYTHONPATH": str(tmp_path),
        "FILAVIVA_APP": "shop:app",
        "RECEIPTS": f"http://127.0.0.1:{port}/receipts",
    }
    await run([*CLI, "setup"], tmp_path, {**journey.environment, **own})
    services = [journey.start(name, **own) for name in ("producer", "worker", "dlq-handler")]
    await asyncio.gather(*(service.ready() for service in services))
    environment = {
        **journey.environment,
        **LINKS,
        "API": f"http://127.0.0.1:{journey.now('producer').http_port}",
        "KEY": journey.token,
        "CONTRACTS": str(tmp_path / "asyncapi.json"),
        "BROKER": user_of_the_page(broker, journey.vhost),
        "DATABASE": database.url,
        "PORT": str(port),
    }
    service = await asyncpg.connect(empty_database)
    yield Ground(journey, broker, typescript, environment, service, database)
    await service.close()
    await database.close()


async def each_program_does_its_work(ground: Ground) -> None:
    for _ in range(2):
        assert await ground.sh("publish") == "the broker keeps invoice-17-issued\n"
    assert '"result":{"number":"R-17"}' in await ground.sh("submit")
    await ground.found("SELECT count(*) FROM booked", 1)
    await ground.found("SELECT max(duplicates) FROM inbox", 1)
    # Of the receipt, and of the one event.
    await ground.found("SELECT count(*) FROM ended WHERE told = 'job.succeeded'", 2)
    assert await ground.service.fetchval("SELECT number FROM receipts") == "R-17"


async def an_answer_of_the_endpoint_is_the_attempts_outcome(ground: Ground) -> None:
    body = {"type": "receipt.send", "data": {"orderId": ""}}
    key = {"Idempotency-Key": "no-order"}
    answer = await ground.journey.call("producer", "POST", "/v1/jobs", json=body, headers=key)
    assert answer.status_code == 202, answer.text
    attempt = "SELECT count(*) FROM filaviva.attempts WHERE error_class = 'terminal'"

    async def refused() -> bool:
        return bool(await ground.journey.value(attempt) == 1)

    await until(refused)


async def submitted(ground: Ground, key: str, copies: int) -> str:
    """Submit the printing of many copies; give the job's path."""
    body = {"type": "receipt.send", "data": {"orderId": key, "copies": copies}}
    headers = {"Idempotency-Key": key}
    answer = await ground.journey.call("producer", "POST", "/v1/jobs", json=body, headers=headers)
    return str(answer.json()["statusUrl"])


async def the_endpoint_tells_its_progress_and_stops_when_it_is_canceled(ground: Ground) -> None:
    path = await submitted(ground, "many", 1000)

    async def job() -> Any:
        return (await ground.journey.call("producer", "GET", path)).json()

    async def printing() -> bool:
        progress = (await job())["progress"] or {"total": None}
        return bool(progress["total"] == 1000 and progress["succeeded"] >= 2)

    async def canceled() -> bool:
        return bool((await job())["status"] == "canceled")

    await until(printing)
    await ground.journey.call("producer", "POST", f"{path}/cancel")
    await until(canceled)
    printed = "SELECT max(n) FROM (SELECT count(*) AS n FROM copies GROUP BY key) AS each_one"
    before = await ground.service.fetchval(printed)
    await submitted(ground, "few", 5)
    await ground.found("SELECT count(*) FROM receipts WHERE number = 'R-few'", 1)
    # Another five were printed meanwhile: of the first one at most that which was in the printer.
    assert await ground.service.fetchval(printed) <= before + 1
    assert await ground.service.fetchval("SELECT count(*) FROM receipts") == 2


async def what_is_refused_is_a_dead_letter(ground: Ground) -> None:
    await publish(ground.journey.vhost, b"hello")

    async def refused() -> bool:
        return await ground.letters() == ["undecodable"]

    async def failed() -> bool:
        return await ground.letters() == ["undecodable", "terminal"]

    await until(refused)
    await publish(ground.journey.vhost, event("17", "booked under another name"))
    await until(failed)


async def large_data_is_fetched(ground: Ground) -> None:
    large = {"type": "invoice.issued", "id": "large", "data": {"number": "1" * 100_000}}
    answer = await ground.journey.call("producer", "POST", "/v1/events", json=large)
    assert answer.status_code == 202, answer.text
    await ground.found("SELECT count(*) FROM booked WHERE length(invoice) = 100000", 1)


async def outages_lose_nothing(ground: Ground) -> None:
    await until(lambda: cut_off(ground.broker))
    await publish(ground.journey.vhost, event("18", "after the connection was lost"))
    await ground.found("SELECT count(*) FROM booked WHERE invoice = '18'", 1)
    ground.database.steal = 1
    await publish(ground.journey.vhost, event("19", "committed, and nobody was told"))
    await ground.found("SELECT count(*) FROM inbox WHERE duplicates = 1", 2)
    await ground.found("SELECT count(*) FROM booked WHERE invoice = '19'", 1)
    await ground.database.close()
    await publish(ground.journey.vhost, event("20", "while the database was away"))
    await ground.database.open()
    await ground.found("SELECT count(*) FROM booked WHERE invoice = '20'", 1)
    assert len(await ground.letters()) == 2


async def test_the_page_is_true(ground: Ground) -> None:
    await ground.sh("contracts")
    await look_at_the_page(ground.folder, ground.environment)

    async with (
        running("consume", ground.folder, ground.environment),
        running("serve", ground.folder, ground.environment),
    ):
        await each_program_does_its_work(ground)
        await an_answer_of_the_endpoint_is_the_attempts_outcome(ground)
        await the_endpoint_tells_its_progress_and_stops_when_it_is_canceled(ground)
        await what_is_refused_is_a_dead_letter(ground)
        await large_data_is_fetched(ground)
        await outages_lose_nothing(ground)

    assert await ground.journey.value("SELECT count(*) FROM filaviva.jobs") == 10
