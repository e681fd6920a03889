"""What recording metrics costs a worker: the same jobs with and without, round by round.

The CPU of a process moves by more than metrics cost, so there are two figures: the medians of many
short rounds side by side, and what the calls of one job cost by themselves, as a share of the CPU
that a job takes in the rounds.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

import uvloop

from benchmarks.__main__ import drain_jobs
from benchmarks.servers import Servers, median, running, show
from filaviva.outcome import Done
from filaviva.telemetry.metrics import Metrics
from filaviva_worker.claim import Claimed
from filaviva_worker.facts import Facts, Settled
from filaviva_worker.lately import Lately

GOAL = 0.02
WAYS = {"with": "filaviva_worker", "without": "benchmarks.unmetered"}
_CALLS, _BATCH = 200_000, 100


async def rounds(servers: Servers, kind: str, total: int, times: int) -> dict[str, list[float]]:
    """CPU µs of the worker for each job, both ways; who goes first changes from round to round."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(times):
        ways = list(WAYS.items())
        for way, module in ways if number % 2 else reversed(ways):
            measured = await drain_jobs(servers, kind, total, module=module)
            found[way].append(measured["cpu"] / total * 1e6)
            print(f"    {kind:8} {way:8} {found[way][-1]:8,.1f} µs/job")
    return found


def calls() -> float:
    """CPU µs that the calls of one job take which a worker makes to record it."""
    metrics = Metrics()
    facts = Facts(metrics, Lately().of("llm"))
    known: dict[str, Any] = dict.fromkeys((each.name for each in fields(Claimed)), 0)
    job = Claimed(**known | {"id": UUID(int=1), "type": "bench.noop", "paused": False})
    batch = [Settled(job, Done(), 0.01, counted=True)] * _BATCH
    began = time.process_time()
    for _ in range(_CALLS // _BATCH):
        for each in batch:
            facts.claimed(each.job, read_as=0)
        facts.settled(batch)
    return (time.process_time() - began) / _CALLS * 1e6


def tell(kind: str, found: dict[str, list[float]], each: float) -> float:
    """Print the figures of one kind; give the share of the calls."""
    spent, without = median(found["with"]), median(found["without"])
    share = each / spent
    shown: Sequence[tuple[str, object]] = [
        ("worker CPU µs/job, with", f"{spent:,.1f} ({_spread(found['with'])})"),
        ("worker CPU µs/job, without", f"{without:,.1f} ({_spread(found['without'])})"),
        ("difference of the medians", f"{spent / without - 1:+.1%}"),
        ("the calls of one job, µs", f"{each:.2f}"),
        (f"their share (goal < {GOAL:.0%})", f"{share:.2%}"),
    ]
    show(f"Cost of metrics, {kind}", shown)
    return share


def _spread(values: Sequence[float]) -> str:
    return f"{min(values):,.1f} to {max(values):,.1f}"


async def measure(servers: Servers, total: int, times: int) -> float:
    """Both kinds of jobs; give the larger share."""
    each = min(calls() for _ in range(3))
    shares = [
        tell(kind, await rounds(servers, kind, total, times), each) for kind in ("effect", "noop")
    ]
    return max(shares)


def main() -> int:
    """Run the comparison; exit code 1 when the calls cost more than the goal."""
    parser = argparse.ArgumentParser(prog="benchmarks.metering", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--broker-version", choices=["system", "4.3"], default="system")
    chosen = parser.parse_args()
    with running(chosen.broker_version) as servers:
        share = uvloop.run(measure(servers, chosen.jobs, chosen.rounds))
    return 0 if share < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
