"""Many open event streams on one producer: how much memory, and how late is an event?

`PYTHONPATH=tests .venv/bin/python -m benchmarks.streams [--streams 1000]`: opens the streams, lets
things happen to their jobs as workers write them, and reads every event where it arrives.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import asyncpg
import httpx2
import psutil

from benchmarks.__main__ import cpu_of, reset, submission
from benchmarks.servers import Servers, free_port, median, running, service, show
from filaviva.database import connect
from filaviva.notify import Notifier
from filaviva.operations import keys
from filaviva.operations.submit import Submitter
from fixtures.waiting import until

GOAL_MB = 250
GOAL_SECONDS = 1.0
_MB = 1024 * 1024

# As a worker writes it: under the row's lock.
_PROGRESS = """
WITH wanted AS MATERIALIZED (SELECT id FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
done AS (UPDATE filaviva.jobs AS jobs SET updated_at = clock_timestamp(), progress = $2::jsonb
    FROM wanted WHERE jobs.id = wanted.id RETURNING jobs.id)
INSERT INTO filaviva.job_events (job_id, kind, data) SELECT id, 'progress', $2::jsonb FROM done
"""


@dataclass
class Reader:
    """The other end of all streams."""

    lags: list[float] = field(default_factory=list)
    ids: dict[int, list[int]] = field(default_factory=dict)

    async def read(self, number: int, stream: asyncio.StreamReader) -> None:
        """Read one stream and note how late each event is."""
        while line := await stream.readline():
            if line.startswith(b"data: "):
                at = re.search(rb'"at":"([^"]+)"', line)
                if at:
                    then = datetime.fromisoformat(at[1].decode())
                    self.lags.append(time.time() - then.timestamp())
            elif line.startswith(b"id: "):
                self.ids.setdefault(number, []).append(int(line[4:]))

    async def until(self, count: int, *, seconds: float = 60) -> None:
        """Wait until so many events have come."""
        await until(lambda: len(self.lags) >= count, seconds=seconds)


@dataclass
class Bench:
    """What every round needs."""

    jobs: list[UUID]
    books: asyncpg.Connection
    notifier: Notifier
    notify: bool = True

    async def happens(self, ids: Sequence[UUID], done: int) -> None:
        """Let these jobs make progress, in one commit; tell of it as a worker does."""
        progress = json.dumps({"done": done, "total": 1000, "message": "reading page"})
        await self.books.execute(_PROGRESS, list(ids), progress)
        if self.notify:
            self.notifier.changed(ids)


@contextlib.asynccontextmanager
async def opened(port: int, token: str, jobs: Sequence[UUID]) -> AsyncIterator[Reader]:
    """Open a stream on each of these jobs."""
    reader, tasks, writers = Reader(), [], []
    for number, job_id in enumerate(jobs):
        stream, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        tasks.append(asyncio.create_task(reader.read(number, stream)))
        writers.append(writer)
    await until(lambda: len(reader.ids) == len(jobs), seconds=60)
    try:
        yield reader
    finally:
        for writer in writers:
            writer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def trickle(bench: Bench, reader: Reader, *, rate: int, seconds: float) -> None:
    """Let so many events a second happen, each a commit of its own, to jobs at random."""
    loop, count = asyncio.get_running_loop(), int(rate * seconds)
    begun = loop.time()
    for number in range(count):
        await bench.happens([random.choice(bench.jobs)], number)  # noqa: S311 - no secret
        await asyncio.sleep(max(0.0, begun + (number + 1) / rate - loop.time()))
    await reader.until(count)


async def bursts(bench: Bench, reader: Reader, *, times: int) -> None:
    """Let something happen to all jobs at once, several times."""
    for number in range(times):
        await bench.happens(bench.jobs, number)
        await reader.until((number + 1) * len(bench.jobs))


async def one_for_all(bench: Bench, reader: Reader, *, events: int, streams: int) -> None:
    """Let things happen to the one job that all streams follow."""
    for number in range(events):
        await bench.happens(bench.jobs[:1], number)
        await asyncio.sleep(0.1)
    await reader.until(events * streams)


def told(name: str, lags: Sequence[float]) -> tuple[str, str]:
    """Show how late events were."""
    ordered = sorted(lags)
    late = f"{median(ordered) * 1e3:,.0f} / {ordered[int(len(ordered) * 0.99)] * 1e3:,.0f}"
    return f"{name}: p50 / p99 / most, ms", f"{late} / {ordered[-1] * 1e3:,.0f}"


async def made(servers: Servers, count: int) -> list[UUID]:
    """Submit jobs that nobody runs."""
    engine = connect(servers.postgres.url, name="bench")
    submitter = Submitter(engine, lambda _: None)
    kept = await asyncio.gather(*(submitter.submit(submission("noop", n)) for n in range(count)))
    await engine.dispose()
    return [one.job_id for one in kept]


async def answers(port: int) -> bool:
    """Tell whether the producer answers."""
    async with httpx2.AsyncClient() as client:
        with contextlib.suppress(httpx2.TransportError):
            return (await client.get(f"http://127.0.0.1:{port}/healthz")).is_success
    return False


@dataclass
class Measured:
    """What the rounds found."""

    producer: psutil.Process
    sizes: list[float]
    rows: list[tuple[str, str]] = field(default_factory=list)
    latest: float = 0.0

    def note(self, name: str, reader: Reader, cpu: float) -> None:
        """Keep what one round found; its events must have come once and in order."""
        if any(ids != sorted(set(ids)) for ids in reader.ids.values()):
            raise AssertionError("found events twice or out of order")
        self.sizes.append(self.producer.memory_info().rss / _MB)
        self.rows += [told(name, reader.lags), (f"{name}: producer's CPU", f"{cpu:.0%}")]
        self.latest = max(self.latest, *reader.lags)


Round = tuple[str, Sequence[UUID], Callable[[Reader], Awaitable[None]]]


def rounds_of(bench: Bench) -> list[Round]:
    """List the rounds: what happens while so many streams are open."""
    every, count = bench.jobs, len(bench.jobs)

    async def untold(reader: Reader) -> None:
        bench.notify = False
        await trickle(bench, reader, rate=50, seconds=10)

    return [
        ("nearly idle", every, lambda r: trickle(bench, r, rate=1, seconds=5)),
        ("100 events/s", every, lambda r: trickle(bench, r, rate=100, seconds=15)),
        ("all jobs at once", every, lambda r: bursts(bench, r, times=5)),
        (
            "all on one job",
            every[:1] * count,
            lambda r: one_for_all(bench, r, events=30, streams=count),
        ),
        ("without notifications", every, untold),
    ]


async def run_rounds(bench: Bench, port: int, token: str, pid: int) -> Measured:
    """Measure every round on one producer."""
    await until(lambda: answers(port), seconds=30)
    producer = psutil.Process(pid)
    found = Measured(producer, [producer.memory_info().rss / _MB])
    for name, jobs, work in rounds_of(bench):
        async with opened(port, token, jobs) as reader:
            reader.lags.clear()
            before, begun = cpu_of(producer), time.monotonic()
            await work(reader)
            cpu = (cpu_of(producer) - before) / (time.monotonic() - begun)
            found.note(name, reader, cpu)
    return found


async def measure(servers: Servers, streams: int) -> tuple[float, float]:
    """Run the rounds; give the most memory in MB and the greatest lag in seconds."""
    await reset(servers)
    engine = connect(servers.postgres.url, name="bench")
    key = await keys.create(engine, name="bench", tenant="default", scopes=["jobs:read"])
    books = await asyncpg.connect(servers.postgres.url)
    bench = Bench(await made(servers, streams), books, Notifier(engine))
    stop, port = asyncio.Event(), free_port()
    notifying = asyncio.create_task(bench.notifier.run(stop))
    with service("filaviva_producer", servers.environment(FILAVIVA_HTTP__PORT=str(port))) as it:
        found = await run_rounds(bench, port, key.token, it.pid)
    stop.set()
    await notifying
    await books.close()
    await engine.dispose()
    sizes = (
        "memory of the producer without / with",
        f"{found.sizes[0]:.0f} / {max(found.sizes):.0f} MB",
    )
    show(f"{streams:,} open streams on one producer", [sizes, *found.rows])
    return max(found.sizes), found.latest


def main() -> int:
    """Measure; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--broker-version", choices=["system", "4.3"], default="system")
    chosen = parser.parse_args()
    with running(chosen.broker_version) as servers:
        memory, lag = asyncio.run(measure(servers, chosen.streams))
    return 0 if memory <= GOAL_MB and lag <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
