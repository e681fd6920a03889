"""Do times fit together: leases and the worst that was measured, stops, the broker's patience."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx2
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.broker.topology import DELIVERY_LIMIT, Topology
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.management import Management, why
from filaviva.operations.doctor.production.sight import LATELY, Process, Sight

_MOST_LAG: Final = 1.0
_ENDING_SECONDS: Final = 20.0  # beside the grace: stopped jobs clean up, outcomes are recorded
_BROKER_PATIENCE: Final = 1800.0  # of RabbitMQ, where nobody has set another
_MARGIN: Final = 300.0
_BY_CONSUMER: Final = (4, 3)  # since then the broker takes our own limit for each consumer

_LOST: Final = f"""
SELECT count(*) FILTER (WHERE outcome = 'lost')::int AS lost, count(*)::int AS attempts
FROM (SELECT outcome FROM filaviva.attempts WHERE job_id >= {LATELY}
    ORDER BY job_id DESC LIMIT 50000) AS newest
"""


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Compare the broker's patience, leases, lags and grace."""
    async for finding in _broker(sight, sight.known("worker")):
        yield finding
    workers = sight.live("worker")
    seen = [each for each in sight.seen() if each.service == "worker"]
    for finding in worker_findings(workers, seen, sight.asked.stop_seconds):
        yield finding
    yield _same_lease(sight.live("worker", "retry-scheduler"))
    yield _lag(sight.seen())
    async with sight.connect() as connection:
        yield await _lost(connection)


def worker_findings(
    live: Sequence[Process], seen: Sequence[Process], stop_seconds: float | None
) -> Iterator[Finding]:
    """Judge the leases of workers; what stopped ones measured within a day counts too."""
    gaps = [(each.measured["renewalGap"], each) for each in seen if each.measured.get("renewalGap")]
    if not gaps:
        yield unknown(
            "lease", "no worker has renewed one within a day", "run `filaviva run worker`"
        )
    else:
        yield _lease(*max(gaps, key=lambda pair: pair[0] / pair[1].settings["leaseSeconds"]))
    if live:
        yield _stop(max(each.settings["graceSeconds"] for each in live), stop_seconds)


def _lease(gap: float, worker: Process) -> Finding:
    lease = float(worker.settings["leaseSeconds"])
    told = (
        f"{lease:g} s; the longest time between two renewals was {gap:.1f} s ({worker.id}), "
        f"planned are {lease / 3:.1f} s"
    )
    expected = f"renewals within two thirds of the lease ({2 * lease / 3:.1f} s)"
    longer = "set FILAVIVA_WORKER__LEASE_SECONDS longer, for workers and retry-scheduler"
    if gap >= lease:
        why = "; others take over jobs that still run"
        find = f"find what stopped that process (swap, a frozen machine, the database), or {longer}"
        return wrong("lease", told + why, find, expected=expected)
    if gap > 2 * lease / 3:
        return attention("lease", told, longer, expected=expected)
    return ok("lease", told)


def _stop(grace: float, stop_seconds: float | None) -> Finding:
    needed = grace + _ENDING_SECONDS
    check = "time to stop"
    expected = (
        f"{needed:g} s or more: the grace of {grace:g} s, and {_ENDING_SECONDS:g} s to record"
    )
    if stop_seconds is None:
        say = "say it: `--stop-seconds N` (terminationGracePeriodSeconds, stop_grace_period, …)"
        return unknown(check, "what your orchestrator gives cannot be seen", say, expected=expected)
    if stop_seconds < needed:
        give = f"give workers {needed:g} s, or lower FILAVIVA_WORKER__GRACE_SECONDS"
        found = f"{stop_seconds:g} s: then jobs are killed, and wait out their leases"
        return wrong(check, found, give, expected=expected)
    return ok(check, f"{stop_seconds:g} s, needed are {needed:g} s")


def _same_lease(live: Sequence[Process]) -> Finding:
    leases = sorted({float(each.settings["leaseSeconds"]) for each in live})
    if len(leases) > 1:
        return attention(
            "one lease",
            f"processes have {', '.join(f'{each:g} s' for each in leases)}",
            "set the same FILAVIVA_WORKER__LEASE_SECONDS for workers and retry-scheduler",
            expected="one for all: the retry-scheduler goes by it after an outage",
        )
    return ok("one lease", f"{leases[0]:g} s" if leases else "nothing runs")


def _lag(processes: Sequence[Process]) -> Finding:
    lags = [(each.measured.get("loopLag", 0.0), each) for each in processes]
    if not lags:
        return unknown("event loops", "nothing ran within a day", "start the services")
    lag, worst = max(lags, key=lambda pair: pair[0])
    if lag <= _MOST_LAG:
        return ok("event loops", f"never late by more than {lag:.2f} s")
    why, step = "the machine was frozen or too busy", "see what else runs there"
    if worst.service == "worker":
        why, step = (
            "a handler blocks it, or the machine",
            "let what blocks be `def`, not `async def`",
        )
    return attention(
        "event loops",
        f"{worst.service} {worst.id} was late by {lag:.1f} s: {why}",
        f"{step}: docs/runbooks/FilavivaEventLoopBlocked.md",
        expected=f"{_MOST_LAG:g} s at most",
    )


async def _lost(connection: AsyncConnection) -> Finding:
    row = (await connection.exec_driver_sql(_LOST)).one()
    if not row.lost:
        return ok("lost attempts", f"none of {row.attempts} in the last 7 days")
    return attention(
        "lost attempts",
        f"{row.lost} of {row.attempts} in the last 7 days: their workers died or lost the lease",
        "see why: docs/runbooks/FilavivaLeasesExpiring.md",
        expected="none, but for workers that were killed",
    )


async def _broker(sight: Sight, workers: Sequence[Process]) -> AsyncIterator[Finding]:
    url, vhost = sight.addresses.management, quote(sight.addresses.vhost, safe="")
    if url is None:
        yield unknown(
            "broker's patience", "no management URL", "set FILAVIVA_BROKER__MANAGEMENT_URL"
        )
        return
    prefix = Topology().work("")
    try:
        async with Management(url) as management:
            version = (await management.get("/api/overview"))["rabbitmq_version"]
            queues = await management.get(f"/api/queues/{vhost}")
    except (httpx2.HTTPError, ValueError, KeyError) as failed:
        yield unknown("broker's patience", why(failed), "see what is said of the broker")
        return
    ours = [queue for queue in queues if queue["name"].startswith(prefix)]
    yield patience_of(version, ours, workers)
    yield deliveries(ours)


def patience_of(
    version: str, queues: Sequence[Mapping[str, Any]], workers: Sequence[Process]
) -> Finding:
    check = "broker's patience"
    detach = max((float(each.settings["detachAfterSeconds"]) for each in workers), default=600.0)
    known = tuple(int(part) for part in version.split(".")[:2])
    set_ = [limit for queue in queues if (limit := _set(queue, "consumer-timeout")) is not None]
    expected = f"{_MARGIN:g} s more than the {detach:g} s after which a long job lets go"
    if known >= _BY_CONSUMER and not set_:
        return ok(check, f"as long as each consumer says: {detach:g} s and 20 minutes")
    least = min(set_) / 1000 if set_ else _BROKER_PATIENCE
    whence = "by policy or argument" if set_ else "unless rabbitmq.conf sets consumer_timeout"
    told = f"{least:g} s {whence}; a long job lets go of its message after {detach:g} s"
    if least < detach + _MARGIN:
        lower = "lower FILAVIVA_WORKER__DETACH_AFTER_SECONDS, or raise consumer_timeout there"
        return wrong(check, told, lower, expected=expected)
    return ok(check, told)


def deliveries(queues: Sequence[Mapping[str, Any]]) -> Finding:
    check, expected = "delivery limit", f"{DELIVERY_LIMIT} on every work queue"
    if not queues:
        return unknown(check, "no work queue is there", "run `filaviva setup`", expected=expected)
    limits = {queue["name"]: _set(queue, "delivery-limit") for queue in queues}
    odd = {name: limit for name, limit in limits.items() if limit != DELIVERY_LIMIT}
    if odd:
        name, limit = next(iter(odd.items()))
        repair = "see which policy sets it: `filaviva topology verify`"
        return wrong(check, f"{name} has {limit}", repair, expected=expected)
    return ok(check, f"{DELIVERY_LIMIT} on {len(limits)} work queues")


def _set(queue: Mapping[str, Any], name: str) -> int | None:
    """Give what holds for a queue: of its argument and its policy the lower one."""
    policy = queue.get("effective_policy_definition") or {}
    argument = (queue.get("arguments") or {}).get(f"x-{name}")
    found = [value for value in (argument, policy.get(name)) if value is not None]
    return min(found) if found else None
