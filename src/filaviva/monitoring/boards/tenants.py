"""Tenants and saturation, from PostgreSQL: a tenant is never a label."""

from typing import Final

from filaviva.monitoring.panels import Board, Panel, Row, Sql, since

_WAITING: Final = """\
SELECT tenant, count(*) FILTER (WHERE state = 'queued' AND parked_reason IS NULL
        AND coalesce(not_before, now()) <= now()) AS due,
    count(*) FILTER (WHERE state = 'queued' AND not_before > now()) AS paused,
    count(*) FILTER (WHERE parked_reason IS NOT NULL) AS parked,
    count(*) FILTER (WHERE state IN ('running', 'cancel_requested')) AS running,
    extract(epoch FROM now() - min(greatest(queued_at, not_before)) FILTER (WHERE
        state = 'queued' AND coalesce(not_before, now()) <= now()))::float8 AS oldest_seconds
FROM filaviva.jobs WHERE state IN ('queued', 'running', 'cancel_requested')
GROUP BY 1 ORDER BY due DESC LIMIT 100"""
_ENDED: Final = f"""\
SELECT tenant, count(*) AS submitted, count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE state = 'failed') AS failed,
    count(*) FILTER (WHERE state = 'canceled') AS canceled, sum(cost_usd)::float8 AS cost_usd,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - created_at))
        AS p95_seconds
FROM filaviva.jobs WHERE {since("id")} AND $__timeFilter(created_at)
GROUP BY 1 ORDER BY submitted DESC LIMIT 100"""
_LIMITS: Final = """\
SELECT rule.tenant, rule.subject, rule.per_minute, rule.queued AS queued_limit,
    rule.running AS running_limit,
    (SELECT count(*) FROM filaviva.jobs WHERE jobs.tenant = rule.tenant
        AND parked_reason = 'limit') AS held_back
FROM filaviva.limits AS rule ORDER BY held_back DESC, 1, 2 LIMIT 100"""
_LETTERS: Final = """\
SELECT coalesce(tenant, '(none)') AS tenant, reason, count(*) AS open, min(created_at) AS oldest,
    sum(cost_usd)::float8 AS cost_usd
FROM filaviva.dead_letters WHERE status IN ('open', 'replaying')
GROUP BY 1, 2 ORDER BY open DESC LIMIT 100"""
_TURNS: Final = """\
SELECT queue, tenant, priority, count(*) AS waiting FROM filaviva.turns
GROUP BY 1, 2, 3 ORDER BY waiting DESC LIMIT 100"""
_SUBJECTS: Final = f"""\
SELECT tenant, subject, count(*) AS jobs, sum(cost_usd)::float8 AS cost_usd
FROM filaviva.jobs WHERE {since("id")} AND $__timeFilter(created_at) AND subject IS NOT NULL
GROUP BY 1, 2 ORDER BY jobs DESC LIMIT 100"""


def _table(title: str, text: str, sql: str, see: str) -> Panel:
    return Panel(
        title=title,
        text=text,
        unit="short",
        kind="table",
        width=12,
        height=9,
        ask=[Sql(sql)],
        see=see,
    )


BOARD: Final = Board(
    uid="filaviva-tenants",
    title="Tenants and saturation",
    text="Who waits, who fills the queue, who is held back, who pays: from PostgreSQL.",
    rows=(
        Row(
            "Now",
            (
                _table(
                    "Who waits",
                    "Jobs that have not ended, by tenant, and the age of the oldest due one.",
                    _WAITING,
                    "FilavivaQueueOld",
                ),
                _table(
                    "Who is held back",
                    "Limits, and how many jobs they hold back now.",
                    _LIMITS,
                    "FilavivaQueueOld",
                ),
                _table(
                    "Who stands in line",
                    "Jobs of a flood that wait their turn, by queue, tenant and priority.",
                    _TURNS,
                    "FilavivaTurnsNotGiven",
                ),
                _table(
                    "Whose dead letters",
                    "Open dead letters by tenant and reason.",
                    _LETTERS,
                    "FilavivaDeadLetterOld",
                ),
            ),
        ),
        Row(
            "In the time shown",
            (
                _table(
                    "What became of their jobs",
                    "Submitted, ended, cost and 95 % duration by tenant.",
                    _ENDED,
                    "FilavivaEndToEndBurn",
                ),
                _table(
                    "End users",
                    "Jobs and cost by end user, where the application names them.",
                    _SUBJECTS,
                    "FilavivaSpendRateHigh",
                ),
            ),
        ),
    ),
)
