"""Is a job that is sent twice one job: proved here or by the drill; who sends without a key."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.made_up import MADE_UP
from filaviva.operations import drills
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.production import double_send
from filaviva.operations.doctor.production.sight import LATELY, Sight

_SHOWN: Final = 3
_NEWEST: Final = f"""
    SELECT type, tenant, idempotency_key, fingerprint, submitted_by, created_at
    FROM filaviva.jobs WHERE id >= {LATELY} AND parent_id IS NULL AND type NOT LIKE 'filaviva.%'
    ORDER BY id DESC LIMIT 50000"""
_WITHOUT: Final = f"""
SELECT newest.type, coalesce(keys.name, newest.submitted_by, 'nobody') AS sender,
    count(*)::int AS jobs,
    count(*) FILTER (WHERE starts_with(newest.idempotency_key, $1))::int AS without
FROM ({_NEWEST}) AS newest LEFT JOIN filaviva.api_keys AS keys ON keys.id = newest.submitted_by
GROUP BY 1, 2 ORDER BY without DESC, jobs DESC, 1, 2
"""
# The same content under another key, minutes later: a second try that nobody recognised as one.
_AGAIN: Final = f"""
SELECT type, count(*)::int AS jobs FROM (
    SELECT type, created_at - lag(created_at) OVER (
        PARTITION BY tenant, type, fingerprint ORDER BY created_at) AS since
    FROM ({_NEWEST}) AS newest) AS compared
WHERE since < interval '10 minutes' GROUP BY type ORDER BY jobs DESC, type
"""
_HOW: Final = (
    "give each job a key of the sender's own that outlives its crash (an order's number): "
    "`idempotency_key=` of the client, `--key` of `filaviva jobs submit`, header Idempotency-Key"
)


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Send a job twice if asked to; then look at who has sent what lately."""
    if sight.asked.send_job_twice:
        yield await double_send.prove(sight.reachable(), sight.asked)
    async with sight.connect() as connection:
        if not sight.asked.send_job_twice:
            yield await _by_drill(connection)
        yield await _without_key(connection)
        yield await _again(connection)


async def _by_drill(connection: AsyncConnection) -> Finding:
    check, proof = "double send", await drills.last_that_held(connection, drills.SENT_TWICE)
    if proof is not None:
        return ok(check, f"the drill of {_day(proof.ended_at)} sent each job twice: each was one")
    return wrong(
        check,
        "nothing was proved here yet",
        "run `filaviva drill`, or `filaviva doctor --production --send-job-twice`",
        expected="two requests with one Idempotency-Key made one job, on this installation",
    )


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


async def _without_key(connection: AsyncConnection) -> Finding:
    check = "jobs with a key"
    rows = (await connection.exec_driver_sql(_WITHOUT, (MADE_UP,))).all()
    jobs, without = sum(row.jobs for row in rows), sum(row.without for row in rows)
    if not jobs:
        return unknown(check, "nobody has submitted a job within 7 days", "look again later")
    if not without:
        return ok(check, f"all {jobs} of the last 7 days")
    told = ", ".join(
        f"{row.without} of {row.jobs} {row.type} from {row.sender}"
        for row in rows[:_SHOWN]
        if row.without
    )
    found = f"{without} of {jobs} of the last 7 days had a key that was made up for the one call"
    return attention(check, f"{found}: {told}", _HOW, expected="each sender chooses it")


async def _again(connection: AsyncConnection) -> Finding:
    check = "same content, other key"
    rows = (await connection.exec_driver_sql(_AGAIN)).all()
    if not rows:
        return ok(check, "none within 10 minutes of another, in the last 7 days")
    told = ", ".join(f"{row.jobs} {row.type}" for row in rows[:_SHOWN])
    next_step = f"if these are second tries, {_HOW}"
    return attention(
        check,
        f"jobs with the content of one within the 10 minutes before, in the last 7 days: {told}",
        next_step,
        expected="a second try has the key of the first",
    )
