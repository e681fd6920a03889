"""The programs of docs/howto/publish-events.md do what the page says."""

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import aio_pika
import asyncpg
import pytest

from fixtures.journey import Journey
from fixtures.waiting import until

PAGE = (Path(__file__).parents[2] / "docs/howto/publish-events.md").read_text(encoding="utf-8")
TYPE = "invoice.issued.v1"

pytestmark = pytest.mark.timeout(120)


def program(name: str) -> str:
    """The code after the comment that names it."""
    found = re.search(rf"<!-- [^>]*\b{name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, name
    return found[1]


async def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, command
    return output.decode()


async def publish(vhost: str, body: str, content_type: str, headers: Any = None) -> None:
    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel(publisher_confirms=True)
        exchange = await channel.get_exchange("filaviva.events", ensure=False)
        message = aio_pika.Message(body.encode(), content_type=content_type, headers=headers)
        await exchange.publish(message, TYPE)


async def test_each_way_to_publish_reaches_each_handler_once(
    journey: Journey, empty_database: str, tmp_path: Path
) -> None:
    (tmp_path / "events_shop.py").write_text(program("app"))
    own = {"PYTHONPATH": str(tmp_path), "FILAVIVA_APP": "events_shop:app"}
    settings = {
        **journey.environment, **own, "SHOP_DATABASE": empty_database, "BROKER": journey.vhost,
    }  # fmt: skip
    cli = [sys.executable, "-m", "filaviva.cli"]
    await run([*cli, "setup"], tmp_path, settings)
    journey.start("producer", **own)
    journey.start("worker", **own)
    await asyncio.gather(*(journey.now(name).ready() for name in ("producer", "worker")))
    service = await asyncpg.connect(empty_database)
    await service.execute("CREATE TABLE invoices (number text)")
    await service.execute(await run([*cli, "outbox-table"], tmp_path, settings))
    relay = await asyncio.create_subprocess_exec(
        *cli, "run", "relay", "--postgres", empty_database, env=settings, cwd=tmp_path
    )

    await asyncio.gather(
        run([sys.executable, "-c", program("outbox")], tmp_path, settings),
        run([sys.executable, "-c", program("publisher")], tmp_path, settings),
    )
    port = journey.now("producer").http_port
    known = {"API": f"http://127.0.0.1:{port}", "KEY": journey.token}
    for _ in range(2):  # whatever comes again is a copy
        answer = await run(["sh", "-c", program("http")], tmp_path, {**settings, **known})
        assert len(json.loads(answer)["jobs"]) == 2, shlex.quote(answer)
        await publish(journey.vhost, program("structured"), "application/cloudevents+json")
        headers = json.loads(program("binary"))
        await publish(journey.vhost, '{"number": "21"}', "application/json", headers)

    async def all_handled() -> bool:
        counts = [
            await journey.value(f"SELECT count(*) FROM shop.{table}")
            for table in ("booked", "thanked")
        ]
        return counts == [5, 5]

    await until(all_handled, seconds=60)
    assert await journey.value("SELECT count(*) FROM filaviva.jobs") == 10

    async def relayed() -> bool:
        return bool(await service.fetchval("SELECT count(*) = 0 FROM filaviva_outbox"))

    await until(relayed)
    relay.terminate()
    assert await relay.wait() == 0
    await service.close()
