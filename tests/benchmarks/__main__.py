"""Measure Filaviva against raw loops on the same servers, in interleaved rounds of one run.

Rates of a shared machine move by a third between runs: read the ratios and the CPU per job.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

import aio_pika
import asyncpg
import psutil
import uvloop

from benchmarks.latency import latency_of_jobs, latency_of_raw, latency_over_http
from benchmarks.servers import Servers, median, raw, running, service, show, until
from benchmarks.submissions import submission
from filaviva.broker.publisher import Publisher
from filaviva.database import connect
from filaviva.operations.submit import Submitter
from filaviva.outbox import OutboxRow
from filaviva.relay import Relay

# What the design must reach, as ratios to the raw loop of the same run.
GOALS = {"effect": 0.45, "noop": 0.6, "latency": 3.0}


async def submit(servers: Servers, kind: str, total: int) -> None:
    """Commit jobs and publish their wake-ups while no worker runs."""
    engine = connect(servers.postgres.url, name="bench")
    rows: list[OutboxRow] = []
    submitter = Submitter(engine, rows.extend)
    publisher = Publisher(servers.broker.url, confirm_timeout=30)
    relay = Relay(engine, publisher)
    stop = asyncio.Event()
    relaying = asyncio.create_task(relay.run(stop))
    started = time.perf_counter()
    for begin in range(0, total, 2000):
        await asyncio.gather(
            *(submitter.submit(submission(kind, n)) for n in range(begin, min(begin + 2000, total)))
        )
        relay.hand_over(rows)
        rows.clear()
    committed = time.perf_counter() - started
    connection = await asyncpg.connect(servers.postgres.url)
    await until(connection, "SELECT -count(*) FROM filaviva.outbox", 0)
    published = time.perf_counter() - started
    print(f"    {total / committed:8,.0f} submitted/s, {total / published:8,.0f} published/s")
    await connection.close()
    stop.set()
    await relaying
    await publisher.close()
    await engine.dispose()


async def drain_jobs(
    servers: Servers, kind: str, total: int, *, module: str = "filaviva_worker"
) -> dict[str, float]:
    """Let one worker process work off what waits; give seconds and CPU."""
    await reset(servers)
    await submit(servers, kind, total)
    connection = await asyncpg.connect(servers.postgres.url)
    environment = servers.environment(
        FILAVIVA_WORKER__QUEUES=f"bench-{kind}", FILAVIVA_WORKER__CONCURRENCY="500"
    )
    done = "SELECT count(*) FROM filaviva.jobs WHERE state = 'succeeded'"
    with service(module, environment) as process:
        worker = psutil.Process(process.pid)
        # What it costs to load the app is no cost of a job.
        await until(connection, "SELECT count(*) FROM filaviva.attempts", 1, every=0.01)
        start, before = cpu_of(worker), servers.cpu()
        # Seldom: to count the jobs costs the database as much as to run some of them.
        await until(connection, done, total, every=1)
        used, after = cpu_of(worker) - start, servers.cpu()
    seconds = await connection.fetchval(
        "SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM filaviva.jobs"
    )
    effects = await connection.fetchval("SELECT count(*) FROM bench.effects")
    if kind == "effect" and effects != total:
        raise AssertionError(f"found {effects} effects, expected {total}")
    await connection.close()
    return {
        "seconds": seconds,
        "cpu": used,
        **{name: after[name] - before[name] for name in after},
    }


def cpu_of(process: psutil.Process) -> float:
    """CPU seconds that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def drain_raw(servers: Servers, kind: str, total: int) -> dict[str, float]:
    """Let the raw loop work off as many messages of the same size from the same queue."""
    await reset(servers)
    queue = f"filaviva.work.bench-{kind}"
    await publish(servers.broker.url, queue, total)
    before = servers.cpu()
    found = await asyncio.to_thread(raw, servers, queue, total, kind)
    after = servers.cpu()
    return {**found, **{name: after[name] - before[name] for name in after}}


async def publish(url: str, queue: str, total: int) -> None:
    """Publish messages as large as a wake-up."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        for begin in range(0, total, 500):
            await asyncio.gather(
                *(
                    channel.default_exchange.publish(
                        aio_pika.Message(
                            json.dumps({"n": n, "padding": "x" * 320}).encode(),
                            message_id=uuid4().hex,
                            delivery_mode=2,
                        ),
                        queue,
                    )
                    for n in range(begin, min(begin + 500, total))
                )
            )


async def reset(servers: Servers) -> None:
    """Begin each round with empty tables."""
    connection = await asyncpg.connect(servers.postgres.url)
    await connection.execute(
        "TRUNCATE filaviva.jobs, filaviva.job_events, filaviva.attempts, filaviva.inbox,"
        " filaviva.outbox, bench.effects"
    )
    await connection.close()


Measure = Callable[[Servers, str, int], Awaitable[dict[str, float]]]


async def drains(servers: Servers, kind: str, total: int, rounds: int) -> float:
    """Interleave raw and jobs; give the ratio of the rates (median of rounds)."""
    ways: dict[str, Measure] = {"raw loop": drain_raw, "filaviva": drain_jobs}
    rates = defaultdict(list)
    cpus = defaultdict(list)
    for _ in range(rounds):
        for name, measure in ways.items():
            found = await measure(servers, kind, total)
            rates[name].append(total / found["seconds"])
            for part in ("cpu", "postgres", "broker"):
                cpus[name, part].append(found[part] / total * 1e6)
            print(f"    {kind:8} {name:10} {rates[name][-1]:8,.0f} jobs/s")
    ratio = median(
        [ours / theirs for ours, theirs in zip(rates["filaviva"], rates["raw loop"], strict=True)]
    )
    rows: list[tuple[str, object]] = [
        (f"{n} jobs/s", f"{median(v):,.0f}") for n, v in rates.items()
    ]
    rows += [(f"{n}: {part} CPU µs/job", f"{median(v):,.0f}") for (n, part), v in cpus.items()]
    rows.append((f"ratio (goal ≥ {GOALS[kind]})", f"{ratio:.2f}"))
    show(f"Drain of {total:,} jobs, {kind}", rows)
    return ratio


async def latencies(servers: Servers, count: int) -> float:
    """Idle latency from submit to effect, through the whole journey; give the ratio of medians."""
    await reset(servers)
    theirs = await latency_of_raw(servers, count)
    await reset(servers)
    ours = await latency_of_jobs(servers, count)
    await reset(servers)
    requested = await latency_over_http(servers, count)
    ratio = median(ours) / median(theirs)
    show(
        f"Idle latency of {count} jobs, ms",
        [
            ("raw loop p50 / p95", _both(theirs)),
            ("filaviva p50 / p95", _both(ours)),
            ("filaviva over HTTP p50 / p95", _both(requested)),
            (f"ratio (goal ≤ {GOALS['latency']})", f"{ratio:.2f}"),
        ],
    )
    return ratio


def _both(found: Sequence[float]) -> str:
    return f"{median(found):.1f} / {sorted(found)[-len(found) // 20]:.1f}"


async def measure(servers: Servers, total: int, rounds: int) -> dict[str, float]:
    """All three figures."""
    return {
        "effect": await drains(servers, "effect", total, rounds),
        "noop": await drains(servers, "noop", total, rounds),
        "latency": await latencies(servers, 200),
    }


def missed(found: dict[str, float]) -> list[str]:
    """Name the goals that were missed."""
    return [
        name
        for name, goal in GOALS.items()
        if (found[name] > goal if name == "latency" else found[name] < goal)
    ]


def main() -> int:
    """Run the benchmarks; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--broker-version", choices=["system", "4.3"], default="system")
    chosen = parser.parse_args()
    with running(chosen.broker_version) as servers:
        found = uvloop.run(measure(servers, chosen.jobs, chosen.rounds))
    failed = missed(found)
    print(f"\nmissed: {', '.join(failed)}" if failed else "\nevery goal is met")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
