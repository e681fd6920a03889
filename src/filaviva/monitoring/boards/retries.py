"""Retries and pauses: planned against actual, and where in the cascade they wait."""

from typing import Final

from filaviva.monitoring.panels import (
    CHOSEN,
    Board,
    Panel,
    Query,
    Row,
    Sql,
    age,
    bad_from,
    chosen,
    figure,
    increase,
    quantiles,
    rate,
    share,
    since,
)

_NEXT: Final = f"""\
SELECT width_bucket(extract(epoch FROM not_before - now())::float8,
        ARRAY[0, 1, 5, 15, 60, 300, 900, 3600, 14400]::float8[]) AS bucket,
    count(*) AS jobs, min(not_before) AS first, max(not_before) AS last
FROM filaviva.jobs WHERE state = 'queued' AND not_before > now() AND parked_reason IS NULL
    AND {chosen("type")}
GROUP BY 1 ORDER BY 1"""
_PLANNED: Final = f"""\
SELECT job.type, attempt.number AS after_attempt, count(*) AS pauses,
    avg(attempt.pause_seconds) AS planned_seconds,
    avg(extract(epoch FROM next.started_at - attempt.finished_at))::float8 AS actual_seconds,
    max(extract(epoch FROM next.started_at - attempt.finished_at)
        - attempt.pause_seconds)::float8 AS latest_seconds
FROM filaviva.attempts AS attempt
JOIN filaviva.jobs AS job ON job.id = attempt.job_id
JOIN filaviva.attempts AS next
    ON next.job_id = attempt.job_id AND next.number = attempt.number + 1
WHERE {since("attempt.job_id", "1 day")} AND attempt.pause_seconds IS NOT NULL
    AND {chosen("job.type")} AND $__timeFilter(next.started_at)
GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 200"""

_PAUSES: Final = (
    Panel(
        title="Pauses that began",
        text="By type: each is an attempt that will be repeated.",
        unit="ops",
        stacked=True,
        ask=[Query(rate("filaviva_retry_pause_seconds_count", "type", CHOSEN), "{{type}}")],
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Length of pauses, as planned",
        text="As the scheduler decided them: they grow with each attempt.",
        unit="s",
        ask=quantiles("filaviva_retry_pause_seconds", CHOSEN),
        see="FilavivaPausesLate",
    ),
    Panel(
        title="Lateness",
        text="From the end of a pause to the claim. The cascade itself is 0.02 to 0.2 s late; "
        "more is a queue or a broker that does not keep up.",
        unit="s",
        ask=quantiles("filaviva_retry_lateness_seconds"),
        steps=bad_from(1, 5),
        see="FilavivaPausesLate",
    ),
    Panel(
        title="Jobs in a pause",
        text="Jobs whose time has not come, by type; scheduled ones too.",
        unit="short",
        stacked=True,
        ask=[Query(figure("filaviva_jobs", "type", f'{CHOSEN},state="paused"'), "{{type}}")],
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Oldest in a pause",
        text="How long ago the one began that pauses longest.",
        unit="s",
        ask=[
            Query(
                age("filaviva_job_oldest_timestamp_seconds", "type", f'{CHOSEN},state="paused"'),
                "{{type}}",
            )
        ],
        see="FilavivaPausesLate",
    ),
    Panel(
        title="Retries by class of error",
        text="Why attempts are repeated.",
        unit="short",
        stacked=True,
        ask=[
            Query(
                increase("filaviva_job_attempts_total", "error_class", f'{CHOSEN},outcome="retry"'),
                "{{error_class}}",
            )
        ],
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Attempts for each job that ended",
        text="1 means that nothing is repeated.",
        unit="short",
        ask=[
            Query(
                share(
                    rate("filaviva_job_attempts_total", where=CHOSEN),
                    rate("filaviva_jobs_finished_total", where=CHOSEN),
                ),
                "attempts",
            )
        ],
        steps=bad_from(2, 4),
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Planned against actual",
        text="Pauses in the time shown, by the attempt after which they came: as decided, and "
        "until the next attempt really began.",
        unit="s",
        kind="table",
        width=16,
        ask=[Sql(_PLANNED)],
        see="FilavivaPausesLate",
    ),
)

_CASCADE: Final = (
    Panel(
        title="Messages by level of the cascade",
        text="Level n holds a message for 0.1 s times two to the n. A level that only grows does "
        "not let go: its target is missing.",
        unit="short",
        stacked=True,
        width=12,
        ask=[
            Query(
                "sum by (queue)(rabbitmq_detailed_queue_messages"
                '{queue=~"filaviva\\\\.delay\\\\.l.*"})',
                "{{queue}}",
            )
        ],
        see="FilavivaPausesLate",
    ),
    Panel(
        title="Waiting for a decision",
        text="Failed attempts that the retry-scheduler has not decided on.",
        unit="short",
        width=6,
        ask=[
            Query(
                'sum by (queue)(rabbitmq_detailed_queue_messages{queue="filaviva.retry.requests"})',
                "{{queue}}",
            )
        ],
        steps=bad_from(100, 1000),
        see="FilavivaSchedulerStalled",
    ),
    Panel(
        title="Wake-ups issued again",
        text="By cause. `lost`: the reconciler found a due job without one.",
        unit="short",
        width=6,
        ask=[Query(increase("filaviva_wakeups_reissued_total", "cause"), "{{cause}}")],
        see="FilavivaWakeupsLost",
    ),
    Panel(
        title="When they are due",
        text="Jobs whose time has not come, by how far away it is (classes: 1 s, 5 s, 15 s, 1, 5, "
        "15 minutes, 1, 4 hours, more).",
        unit="short",
        kind="table",
        width=24,
        height=7,
        ask=[Sql(_NEXT)],
        see="FilavivaPausesLate",
    ),
)

BOARD: Final = Board(
    uid="filaviva-retries",
    title="Retries and pauses",
    text="Why attempts are repeated, how long they pause, planned against actual, and where.",
    by_type=True,
    rows=(Row("Pauses", _PAUSES), Row("The cascade", _CASCADE)),
)
