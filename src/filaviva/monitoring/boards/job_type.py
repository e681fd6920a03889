"""Job type: how one type of job fares, and at which step it fails."""

from typing import Final

from filaviva.monitoring.panels import (
    ANY,
    CHOSEN,
    Board,
    Panel,
    Query,
    Row,
    Sql,
    bad_from,
    chosen,
    increase,
    quantile,
    quantiles,
    rate,
    share,
    since,
)

# Attempts have no index on time, jobs do: their ids. A job older than a day counts no more.
_STEPS: Final = f"""\
SELECT job.type, coalesce(attempt.step, '(outside of steps)') AS step, attempt.error_class,
    attempt.error_code, attempt.outcome, count(*) AS attempts,
    sum(attempt.cost_usd)::float8 AS cost_usd, max(attempt.finished_at) AS last
FROM filaviva.attempts AS attempt JOIN filaviva.jobs AS job ON job.id = attempt.job_id
WHERE {since("attempt.job_id", "1 day")} AND $__timeFilter(attempt.finished_at)
    AND attempt.outcome IN ('retry', 'failed', 'lost') AND {chosen("job.type")}
GROUP BY 1, 2, 3, 4, 5 ORDER BY attempts DESC LIMIT 100"""

_FARES: Final = (
    Panel(
        title="Attempts by outcome",
        text="What attempts of these types came to.",
        unit="ops",
        stacked=True,
        ask=[Query(rate("filaviva_job_attempts_total", "outcome", CHOSEN), "{{outcome}}")],
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Success of attempts",
        text="Share of the attempts that succeeded.",
        unit="percentunit",
        ask=[
            Query(
                share(
                    rate("filaviva_job_attempts_total", "type", f'{CHOSEN},outcome="succeeded"'),
                    rate("filaviva_job_attempts_total", "type", CHOSEN),
                ),
                "{{type}}",
            )
        ],
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Duration of attempts",
        text="From claim to outcome.",
        unit="s",
        ask=quantiles("filaviva_job_attempt_duration_seconds", CHOSEN),
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Wait for a worker",
        text="95 % of the jobs waited less, from due to claimed.",
        unit="s",
        ask=[Query(quantile(0.95, "filaviva_job_queue_wait_seconds", "type", CHOSEN), "{{type}}")],
        steps=bad_from(30, 60),
        see="FilavivaQueueWaitBurn",
    ),
    Panel(
        title="From submission to end",
        text="95 % of the jobs ended within this time, by final state.",
        unit="s",
        ask=[
            Query(quantile(0.95, "filaviva_job_end_to_end_seconds", "state", CHOSEN), "{{state}}")
        ],
        steps=bad_from(600, 1800),
        see="FilavivaEndToEndBurn",
    ),
    Panel(
        title="Durations of attempts, all of them",
        text="How many attempts took how long.",
        unit="s",
        kind="heatmap",
        ask=[
            Query(increase("filaviva_job_attempt_duration_seconds_bucket", "le", CHOSEN), "{{le}}")
        ],
        see="FilavivaQueueOld",
    ),
)

_FAILS: Final = (
    Panel(
        title="Failed attempts by class of error",
        text="`retry`: it will be repeated. `failed`: it is a dead letter. `lost`: its worker "
        "stopped answering.",
        unit="short",
        stacked=True,
        ask=[
            Query(
                increase(
                    "filaviva_job_attempts_total",
                    "outcome, error_class",
                    f'{CHOSEN},outcome=~"retry|failed|lost"',
                ),
                "{{outcome}} {{error_class}}",
            )
        ],
        steps=ANY,
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Steps by outcome",
        text="Executed steps; a step that succeeded is not repeated by later attempts.",
        unit="short",
        stacked=True,
        ask=[
            Query(
                increase("filaviva_step_attempts_total", "step, outcome", CHOSEN),
                "{{step}} {{outcome}}",
            )
        ],
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Share of failing executions by step",
        text="At which step it fails.",
        unit="percentunit",
        ask=[
            Query(
                share(
                    rate("filaviva_step_attempts_total", "step", f'{CHOSEN},outcome="failed"'),
                    rate("filaviva_step_attempts_total", "step", CHOSEN),
                ),
                "{{step}}",
            )
        ],
        steps=bad_from(0.1, 0.5),
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Failures by step, from the records",
        text="Every failed attempt in the time shown, by the step at which it failed, with what "
        "it had cost.",
        unit="short",
        kind="table",
        width=16,
        height=9,
        ask=[Sql(_STEPS)],
        see="FilavivaDeadLettersMany",
    ),
    Panel(
        title="Contract violations",
        text="Messages and requests that did not fit, by reason.",
        unit="short",
        height=9,
        ask=[
            Query(
                increase("filaviva_contract_violations_total", "type, version, reason", CHOSEN),
                "{{type}} v{{version}} {{reason}}",
            )
        ],
        steps=ANY,
        see="FilavivaContractViolations",
    ),
)

_STOPS: Final = (
    Panel(
        title="From cancel to stopped",
        text="95 % stopped within this time, by how hard they had to be asked.",
        unit="s",
        width=12,
        ask=[Query(quantile(0.95, "filaviva_cancel_seconds", "rung"), "{{rung}}")],
        steps=bad_from(30, 120),
        see="FilavivaCancelNotStopping",
    ),
    Panel(
        title="Steps begun after a cancel",
        text="Must stay 0: cancel stops the work.",
        unit="short",
        kind="stat",
        width=4,
        ask=[Query("sum(increase(filaviva_steps_after_cancel_total[$__range]))")],
        steps=ANY,
        see="FilavivaStepsAfterCancel",
    ),
    Panel(
        title="Old data made new",
        text="Jobs of older versions of their contract, upcast before they were read.",
        unit="short",
        ask=[
            Query(
                increase("filaviva_contract_upcasts_total", "type, from, to", CHOSEN)
                + " or vector(0)",
                "{{type}} {{from}} → {{to}}",
            )
        ],
        see="FilavivaContractViolations",
    ),
)

BOARD: Final = Board(
    uid="filaviva-job-type",
    title="Job type",
    text="How one type of job fares, at which step it fails, whether cancel stops it.",
    by_type=True,
    rows=(
        Row("How it fares", _FARES),
        Row("Where it fails", _FAILS),
        Row("Cancel and versions", _STOPS),
    ),
)
