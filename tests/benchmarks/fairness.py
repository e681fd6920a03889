"""One tenant's backlog and the others: how long does a single job of somebody else take?

`PYTHONPATH=tests .venv/bin/python -m benchmarks.fairness [--jobs 50000] [--due]`: a tenant submits
its backlog, then other tenants submit one job each while it is worked off; once with turns, and
once as if there were none. With `--due` the backlog has a `runAt`, and all of it comes due at once.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg

from benchmarks.__main__ import reset
from benchmarks.servers import Servers, median, running, service, show, until
from benchmarks.submissions import submission
from filaviva.broker.depths import QueueDepths
from filaviva.broker.publisher import Publisher
from filaviva.database import connect
from filaviva.operations.submit import Submitter
from filaviva.relay import Relay
from filaviva.turns import Turns

PROBES = 10
GOAL_SECONDS = 3.0
KIND = "effect"


@asynccontextmanager
async def submitting(servers: Servers, *, fair: bool) -> AsyncIterator[Submitter]:
    """A producer without its HTTP."""
    engine = connect(servers.postgres.url, name="bench")
    publisher = Publisher(servers.broker.url, confirm_timeout=30)
    relay, depths = Relay(engine, publisher), QueueDepths(servers.broker.url)
    turns = Turns(engine, depths) if fair else None
    stop = asyncio.Event()
    loops = [relay, depths, *([turns] if turns else [])]
    running = [asyncio.create_task(loop.run(stop)) for loop in loops]
    try:
        if turns is not None:
            await turns.step()
        yield Submitter(engine, relay.hand_over, turns=turns)
    finally:
        stop.set()
        await asyncio.wait(running)
        await publisher.close()
        await engine.dispose()


async def backlog(submitter: Submitter, total: int, *, due: bool) -> float:
    """Submit one tenant's jobs; give the seconds that it took. `due`: for a moment after that."""
    started = time.perf_counter()
    moment = datetime.now(UTC) + timedelta(seconds=10 + total / 1000) if due else None
    for begin in range(0, total, 2000):
        many = [
            replace(submission(KIND, n), tenant="large", not_before=moment)
            for n in range(begin, begin + 2000)
        ]
        await asyncio.gather(*(submitter.submit(one) for one in many))
    return time.perf_counter() - started


async def probe(submitter: Submitter, books: asyncpg.Connection, n: int) -> float:
    """Submit one job of another tenant; give the seconds until it has ended."""
    started = time.perf_counter()
    kept = await submitter.submit(replace(submission(KIND, -n), tenant=f"small-{n}"))
    ended = f"SELECT count(*) FROM filaviva.jobs WHERE id = '{kept.job_id}' AND state = 'succeeded'"
    await until(books, ended, 1, seconds=300, every=0.02)
    return time.perf_counter() - started


async def measure(
    servers: Servers, total: int, *, fair: bool, due: bool
) -> tuple[Sequence[float], float]:
    """Give the probes' seconds, and the rate at which the backlog was worked off."""
    await reset(servers)
    books = await asyncpg.connect(servers.postgres.url)
    await books.execute("TRUNCATE filaviva.turns, filaviva.upcoming")
    worker = servers.environment(
        FILAVIVA_WORKER__QUEUES=f"bench-{KIND}", FILAVIVA_WORKER__CONCURRENCY="100"
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(service("filaviva_retry_scheduler", servers.environment()))
        keeping = "SELECT count(*) FROM filaviva.turn_keeper WHERE until > now()"
        await until(books, keeping, 1)
        submitter = await stack.enter_async_context(submitting(servers, fair=fair))
        seconds = await backlog(submitter, total, due=due)
        print(f"    {total / seconds:8,.0f} submitted/s")
        stack.enter_context(service("filaviva_worker", worker))
        done = "SELECT count(*) FROM filaviva.jobs WHERE state = 'succeeded'"
        await until(books, done, 100, every=0.02)
        probes = PROBES if fair else 1
        found = [await probe(submitter, books, n) for n in range(1, probes + 1)]
        left = total + probes - await books.fetchval(done)
        print(f"    {left:,} of the backlog still waited after the last probe")
        await until(books, done, total + probes, seconds=600)
    rate = total / await books.fetchval(
        "SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM filaviva.jobs"
    )
    await books.close()
    return found, rate


async def compare(servers: Servers, total: int, *, due: bool) -> float:
    """With turns and without; give the slowest probe with them."""
    probes, rate = await measure(servers, total, fair=True, due=due)
    (alone,), free = await measure(servers, total, fair=False, due=due)
    show(
        f"One job beside a backlog of {total:,} jobs of another tenant",
        [
            ("seconds, median / slowest", f"{median(probes):.2f} / {max(probes):.2f}"),
            ("seconds, as if there were no turns", f"{alone:.2f}"),
            ("backlog worked off, jobs/s", f"{rate:,.0f}"),
            ("as if there were no turns, jobs/s", f"{free:,.0f}"),
        ],
    )
    return max(probes)


def main() -> int:
    """Run the comparison; exit code 1 when a probe took too long."""
    parser = argparse.ArgumentParser(prog="benchmarks.fairness", description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--due", action="store_true")
    parser.add_argument("--broker-version", choices=["system", "4.3"], default="system")
    chosen = parser.parse_args()
    with running(chosen.broker_version) as servers:
        slowest = asyncio.run(compare(servers, chosen.jobs, due=chosen.due))
    return 0 if slowest <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
