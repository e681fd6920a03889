"""Idle latency: from the submission of a lone job to the time its effect was written.

Idle means that nothing happened just before: a job comes every 50 ms. Without that pause a loop
that publishes again as soon as it sees its effect keeps broker and caches awake for itself alone.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

import aio_pika
import asyncpg
import httpx2

from benchmarks.servers import Servers, free_port, service, until
from benchmarks.submissions import submission
from filaviva.broker.publisher import Publisher
from filaviva.database import connect
from filaviva.operations import keys
from filaviva.operations.submit import Submitter
from filaviva.relay import Relay

WARM_UP = 20
PAUSE = 0.05
Submit = Callable[[int], Awaitable[None]]


async def latency_of_raw(servers: Servers, count: int) -> list[float]:
    """Publish with a confirm, one by one, to the raw loop; milliseconds."""
    queue = "filaviva.work.bench-effect"
    loop = subprocess.Popen(
        [
            sys.executable, "-m", "benchmarks.raw",
            servers.broker.url, servers.postgres.url, queue, str(count + WARM_UP), "effect",
        ],
        env=servers.environment(), stdout=subprocess.DEVNULL,
    )  # fmt: skip
    connection = await aio_pika.connect(servers.broker.url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)

        async def submit(n: int) -> None:
            body = b'{"n": %d, "padding": "%s"}' % (n, b"x" * 320)
            message = aio_pika.Message(body, message_id=uuid4().hex, delivery_mode=2)
            await channel.default_exchange.publish(message, queue)

        try:
            return await _one_by_one(servers, submit, count)
        finally:
            loop.wait(20)


async def latency_of_jobs(servers: Servers, count: int) -> list[float]:
    """Submit in this process as the producer does, one by one, to a worker; milliseconds.

    Like the raw loop's publish, this is the submission itself, without a request around it.
    """
    engine = connect(servers.postgres.url, name="bench")
    publisher = Publisher(servers.broker.url, confirm_timeout=30)
    relay = Relay(engine, publisher)
    submitter = Submitter(engine, relay.hand_over)
    stop = asyncio.Event()
    relaying = asyncio.create_task(relay.run(stop))
    worker = servers.environment(FILAVIVA_WORKER__QUEUES="bench-effect")

    async def submit(n: int) -> None:
        await submitter.submit(submission("effect", n))

    try:
        with service("filaviva_worker", worker):
            return await _one_by_one(servers, submit, count)
    finally:
        stop.set()
        await relaying
        await publisher.close()
        await engine.dispose()


async def latency_over_http(servers: Servers, count: int) -> list[float]:
    """Submit over HTTP, one by one, to producer and worker; milliseconds."""
    engine = connect(servers.postgres.url, name="bench")
    key = await keys.create(engine, name="bench", tenant="default", scopes=["jobs:write"])
    await engine.dispose()
    port = free_port()
    producer = servers.environment(FILAVIVA_HTTP__PORT=str(port))
    worker = servers.environment(FILAVIVA_WORKER__QUEUES="bench-effect")
    url = f"http://127.0.0.1:{port}"
    with service("filaviva_producer", producer), service("filaviva_worker", worker):
        headers = {"Authorization": f"Bearer {key.token}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
            await _ready(client)

            async def submit(n: int) -> None:
                answer = await client.post(
                    "/v1/jobs",
                    json={"type": "bench.effect", "data": {"n": n}},
                    headers={"Idempotency-Key": uuid4().hex},
                )
                answer.raise_for_status()

            return await _one_by_one(servers, submit, count)


async def _one_by_one(servers: Servers, submit: Submit, count: int) -> list[float]:
    connection = await asyncpg.connect(servers.postgres.url)
    sent = {}
    for n in range(count + WARM_UP):
        sent[n] = time.time()
        await submit(n)
        await asyncio.sleep(PAUSE)  # and no question meanwhile: it would compete with the answer
        question = f"SELECT count(*) FROM bench.effects WHERE n = {n}"
        await until(connection, question, 1, seconds=20, every=0.002)
    rows = await connection.fetch(
        "SELECT n, extract(epoch FROM at)::float8 AS at FROM bench.effects"
    )
    await connection.close()
    return [(row["at"] - sent[row["n"]]) * 1000 for row in rows if row["n"] >= WARM_UP]


async def _ready(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.1)
