"""Look at PostgreSQL: is it there, is it ours, and does the work in it move."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import outbox
from filaviva.callbacks.contract import QUEUE as CALLBACKS
from filaviva.database import newest_revision, present_revision, redacted
from filaviva.database.transaction import DATABASE_ERRORS, words
from filaviva.operations.doctor.bounded import ANSWER_SECONDS
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.stranded import stranded

_OLDEST_SUPPORTED: Final = 15
_NEWEST_TESTED: Final = 18
_LATE_SECONDS: Final = 60

_VERSION: Final = "SELECT current_setting('server_version_num')::int / 10000"

# Ours (callbacks) is served where there is a secret for it: without one nothing waits there.
_QUEUES: Final = """
SELECT known.queue, count(live.id) AS workers, coalesce(sum(live.slots), 0)::bigint AS slots
FROM (SELECT DISTINCT queue FROM filaviva.contracts
      WHERE queue IS NOT NULL AND deprecated_at IS NULL
          AND (type NOT LIKE 'filaviva.%' OR EXISTS (
              SELECT FROM filaviva.jobs WHERE state = 'queued' AND jobs.queue = contracts.queue))
     ) AS known
LEFT JOIN filaviva.workers AS live ON known.queue = ANY (live.queues)
    AND live.service = 'worker' AND live.stopped_at IS NULL
    AND live.last_seen_at > clock_timestamp() - make_interval(secs => $1)
GROUP BY known.queue ORDER BY known.queue
"""

_LEASES: Final = """
SELECT count(*) AS expired FROM filaviva.jobs
WHERE state IN ('running', 'cancel_requested')
    AND lease_expires_at < clock_timestamp() - make_interval(secs => $1)
"""

_OUTBOX_AGE: Final = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS seconds
FROM filaviva.outbox WHERE parked_at IS NULL
"""

_PARKED: Final = """
SELECT parked_reason, count(*) AS jobs FROM filaviva.jobs
WHERE parked_reason IS NOT NULL AND parked_reason NOT IN ('items', 'concurrency', 'limit')
GROUP BY parked_reason ORDER BY parked_reason
"""

_SUNSETS: Final = """
SELECT type, version, contracts.sunset, count(DISTINCT source) AS senders,
    sum(uses)::bigint AS uses
FROM filaviva.contracts JOIN filaviva.contract_uses USING (type, version)
WHERE contracts.sunset < current_date AND deprecated_at IS NULL AND day > current_date - 7
GROUP BY type, version, contracts.sunset ORDER BY type, version
"""

_TURNS: Final = """
SELECT count(*) AS jobs, EXISTS (
    SELECT FROM filaviva.turn_keeper WHERE until > clock_timestamp()) AS given,
    (SELECT count(*) FROM filaviva.processes WHERE service = 'retry-scheduler'
        AND stopped_at IS NULL AND last_seen_at > clock_timestamp() - interval '30 seconds'
    ) AS schedulers
FROM (SELECT FROM filaviva.turns
    UNION ALL SELECT FROM filaviva.upcoming WHERE due_at < now() - interval '1 minute') AS waiting
"""

_OPEN_LETTERS: Final = """
SELECT count(*) AS letters, count(DISTINCT group_id) AS causes FROM filaviva.dead_letters
WHERE status = 'open'
"""

_ALERTS: Final = """
SELECT count(*) FILTER (WHERE state = 'waiting' AND tries > 0) AS failing,
    count(*) FILTER (WHERE state = 'dropped') AS dropped,
    max(error) FILTER (WHERE state = 'waiting' AND tries > 0) AS error,
    max(error) FILTER (WHERE state = 'dropped') AS why_dropped
FROM filaviva.notifications
WHERE created_at > clock_timestamp() - interval '7 days' AND kind <> 'test'
"""


async def examine(engine: AsyncEngine, url: str, *, lease_seconds: float) -> AsyncIterator[Finding]:
    """Look at everything that the database knows; what needs more is left out when it is away."""
    where = redacted(url)
    try:
        async with asyncio.timeout(ANSWER_SECONDS) as limit:
            async with engine.connect() as connection:
                version = (await _one(connection, _VERSION))[0]
            present = await present_revision(engine)
    except DATABASE_ERRORS as away:
        late = f"it does not answer within {ANSWER_SECONDS:g} s"
        yield wrong(
            "database",
            f"{where} cannot be used: {late if limit.expired() else words(away)}",
            "start PostgreSQL, or correct FILAVIVA_POSTGRES__URL",
        )
        return
    yield _version(version, where)
    yield _migrations(present)
    if present is None:
        return
    try:
        async with engine.connect() as connection:
            async for finding in _work(connection, lease_seconds):
                yield finding
    except DATABASE_ERRORS as refused:
        yield unknown(
            "tables",
            f"they cannot be read: {words(refused)}",
            "run `filaviva setup`, then `filaviva doctor` again",
        )


async def _work(connection: AsyncConnection, lease_seconds: float) -> AsyncIterator[Finding]:
    # A worker is seen three times a lease.
    async for finding in _workers(connection, max(30.0, lease_seconds)):
        yield finding
    for each in await stranded(connection):
        yield wrong(f"jobs on {each.queue}", each.found, each.next_step)
    yield _leases(await _one(connection, _LEASES, (max(30.0, lease_seconds),)))
    for finding in _outbox(
        await outbox.backlog(connection), (await _one(connection, _OUTBOX_AGE)).seconds
    ):
        yield finding
    yield await _parked(connection)
    yield await _sunsets(connection)
    yield await _turns(connection)
    yield _letters(await _one(connection, _OPEN_LETTERS))
    yield _alerts(await _one(connection, _ALERTS))


def _version(found: int, where: str) -> Finding:
    check, what = "database", f"PostgreSQL {found} at {where}"
    supported = f"{_OLDEST_SUPPORTED} to {_NEWEST_TESTED}"
    if found < _OLDEST_SUPPORTED:
        return wrong(check, f"{what}, supported are {supported}", "upgrade PostgreSQL")
    if found > _NEWEST_TESTED:
        return attention(check, f"{what}, tested are {supported}", "test before you rely on it")
    return ok(check, what)


def _migrations(present: str | None) -> Finding:
    newest = newest_revision()
    if present == newest:
        return ok("migrations", f"at {present}")
    if present is not None and present > newest:
        found = f"at {present}, and this release knows {newest}: a newer one is being deployed"
        return attention("migrations", found, "go on with the deploy; old processes keep working")
    found = "never set up" if present is None else f"at {present}"
    return wrong("migrations", f"{found}, this release expects {newest}", "run `filaviva setup`")


async def _workers(connection: AsyncConnection, fresh_seconds: float) -> AsyncIterator[Finding]:
    found = (await connection.exec_driver_sql(_QUEUES, (fresh_seconds,))).all()
    if not found:
        yield attention(
            "workers",
            "no contract is published",
            "run `FILAVIVA_APP=package.module:app filaviva setup`",
        )
    for row in found:
        queue, check = row.queue, f"workers of {row.queue}"
        if row.workers:
            yield ok(check, f"{row.workers} alive, {row.slots} slots")
        else:
            needs = "FILAVIVA_CALLBACKS__SECRET" if queue == CALLBACKS else "its FILAVIVA_APP"
            run = f"run `FILAVIVA_WORKER__QUEUES={queue} filaviva run worker` with {needs}"
            yield wrong(check, "none is alive", run)


def _leases(row: Any) -> Finding:
    if not row.expired:
        return ok("leases", "none has expired")
    return wrong(
        "leases",
        f"{row.expired} job(s) belong to workers that are gone, and nobody frees them",
        "run `filaviva run retry-scheduler`",
    )


def _outbox(backlog: outbox.Backlog, oldest_seconds: float) -> list[Finding]:
    found = f"{backlog.pending} waiting"
    late = oldest_seconds > _LATE_SECONDS
    waiting = (
        wrong(
            "outbox",
            f"{found}, the oldest for {oldest_seconds:.0f} s",
            "see that the broker is up and a service runs: any service's relay takes them there",
        )
        if late
        else ok("outbox", found)
    )
    if not backlog.parked:
        return [waiting]
    return [
        waiting,
        wrong(
            "outbox, parked",
            f"{backlog.parked} message(s) that no queue takes, or that the broker refuses",
            "run `filaviva topology verify`; the reason is in filaviva.outbox.error",
        ),
    ]


async def _parked(connection: AsyncConnection) -> Finding:
    found = (await connection.exec_driver_sql(_PARKED)).all()
    if not found:
        return ok("parked jobs", "none")
    return attention(
        "parked jobs",
        ", ".join(f"{row.jobs} {row.parked_reason}" for row in found),
        "deploy workers that can read them: they are released by themselves",
    )


async def _sunsets(connection: AsyncConnection) -> Finding:
    late = (await connection.exec_driver_sql(_SUNSETS)).all()
    if not late:
        return ok("contracts", "no version is in use after its last day")
    return attention(
        "contracts",
        "; ".join(
            f"{row.type} v{row.version} was to be read until {row.sunset}, and {row.senders} "
            f"sender(s) used it {row.uses} time(s) in the last week"
            for row in late
        ),
        "ask who they are: `filaviva contracts uses`; give them a later day, or help them move",
    )


async def _turns(connection: AsyncConnection) -> Finding:
    found = (await connection.exec_driver_sql(_TURNS)).one()
    waiting = f"{found.jobs} job(s) wait for their turn"
    if found.jobs and not found.given and not found.schedulers:
        why = "no retry-scheduler runs to give it"
        return wrong("turns", f"{waiting}, and {why}", "run `filaviva run retry-scheduler`")
    if found.jobs and not found.given:
        # It first asks the broker how much waits in each queue already.
        why = f"{found.schedulers} retry-scheduler(s) run but cannot give it"
        return wrong(
            "turns",
            f"{waiting}, and {why}: the broker does not say how much its queues hold",
            "see what is said of the broker: the turns go on by themselves once it answers",
        )
    return ok("turns", waiting)


def _letters(row: Any) -> Finding:
    if not row.letters:
        return ok("dead letters", "none is open")
    return attention(
        "dead letters",
        f"{row.letters} open, of {row.causes} cause(s)",
        "run `filaviva dlq groups --state open`",
    )


def _alerts(row: Any) -> Finding:
    if row.failing:
        return wrong(
            "alerts",
            f"{row.failing} could not be sent yet: {row.error}",
            "correct FILAVIVA_SLACK__WEBHOOK_URL of the dlq-handler, or wait for Slack",
        )
    if row.dropped:
        return attention(
            "alerts",
            f"{row.dropped} were dropped in the last 7 days: {row.why_dropped}",
            "run `filaviva dlq groups` to see what nobody was told",
        )
    return ok("alerts", "none has failed")


async def _one(connection: AsyncConnection, statement: str, values: tuple[Any, ...] = ()) -> Any:
    return (await connection.exec_driver_sql(statement, values)).one()
