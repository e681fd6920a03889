"""The programs of docs/howto/publish-from-another-language.md do what the page says."""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    async with httpx2.AsyncClient(trust_env=False) as client:
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


async def test_the_page_is_true(
    journey: Journey,
    broker: Broker,
    typescript: Path,
    empty_database: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(program("app"))
    port = free_port()
    own = {
        **LINKS,
        "PYTHONPATH": str(tmp_path),
        "FILAVIVA_APP": "shop:app",
        "RECEIPTS": f"http://127.0.0.1:{port}/receipts",
    }
    await run([*CLI, "setup"], tmp_path, {**journey.environment, **own})
    for name in ("producer", "worker", "dlq-handler"):
        journey.start(name, **own)
    await asyncio.gather(
        *(journey.now(name).ready() for name in ("producer", "worker", "dlq-handler"))
    )
    environment = {
        **os.environ,
        "API": f"http://127.0.0.1:{journey.now('producer').http_port}",
        "KEY": journey.token,
        "CONTRACTS": str(tmp_path / "asyncapi.json"),
        "BROKER": user_of_the_page(broker, journey.vhost),
        "DATABASE": empty_database,
        "PORT": str(port),
    }
    await run(["sh", "-c", program("contracts")], tmp_path, environment)
    await look_at_the_page(tmp_path, {**journey.environment, **environment, **LINKS})
    service = await asyncpg.connect(empty_database)

    async def counted(statement: str, expected: Any) -> bool:
        return bool(await service.fetchval(statement) == expected)

    async with (
        running("consume", typescript, environment),
        running("serve", typescript, environment),
    ):
        for _ in range(2):
            said = await run(["sh", "-c", program("publish")], typescript, environment)
            assert said == "the broker keeps invoice-17-issued\n"
        done = await run(["sh", "-c", program("submit")], typescript, environment)
        assert '"result":{"number":"R-17"}' in done
        await publish(journey.vhost, b"hello")

        await until(lambda: counted("SELECT count(*) FROM booked", 1))
        await until(lambda: counted("SELECT sum(duplicates) FROM inbox WHERE duplicates > 0", 1))
        told = "SELECT count(*) FROM ended WHERE told = 'job.succeeded'"
        await until(lambda: counted(told, 2))  # of the receipt, and of the one event
        assert await service.fetchval("SELECT number FROM receipts") == "R-17"

        async def refused() -> bool:
            letters = await journey.fetch(
                "SELECT reason FROM filaviva.dead_letters WHERE source_queue = 'books.invoices'"
                " ORDER BY created_at"
            )
            return [letter["reason"] for letter in letters] == ["undecodable", "terminal"]

        await publish(journey.vhost, event("17", "booked under another name"))
        await until(refused)
        await until(lambda: cut_off(broker))
        await publish(journey.vhost, event("18", "after the connection was lost"))
        await until(lambda: counted("SELECT count(*) FROM booked", 2))
        large = {"type": "invoice.issued", "id": "large", "data": {"number": "1" * 100_000}}
        answer = await journey.call("producer", "POST", "/v1/events", json=large)
        assert answer.status_code == 202, answer.text
        booked = "SELECT count(*) FROM booked WHERE length(invoice) = 100000"
        await until(lambda: counted(booked, 1))
    assert await journey.value("SELECT count(*) FROM filaviva.jobs") == 5
    await service.close()
