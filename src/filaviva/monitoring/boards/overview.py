"""Overview: are accepted jobs done in time, what waits, what fails, what does it cost."""

from typing import Final

from filaviva.monitoring.panels import (
    ANY,
    Board,
    Panel,
    Query,
    Row,
    age,
    bad_from,
    figure,
    good_from,
    increase,
    quantile,
    quantiles,
    rate,
    share,
)

_FIRING = 'ALERTS{alertstate="firing",severity=~"page|ticket"}'
_FAILED = 'outcome=~"retry|failed|lost"'
_FAILING = rate("filaviva_job_attempts_total", where=_FAILED)

_NOW: Final = (
    Panel(
        title="Submissions accepted",
        text="Share of POST /v1/jobs and /v1/events in the last hour that was not answered with "
        "5xx. The objective is 99.9 % of 30 days.",
        unit="percentunit",
        kind="stat",
        width=4,
        height=5,
        ask=[Query("1 - app:filaviva_submission:bad_ratio_1h")],
        steps=good_from(0.99, 0.999),
        see="FilavivaSubmissionBurn",
    ),
    Panel(
        title="Begun within a minute",
        text="Share of the jobs of the last hour that waited less than a minute for a worker. The "
        "objective is 99 %.",
        unit="percentunit",
        kind="stat",
        width=4,
        height=5,
        ask=[Query("1 - app:filaviva_queue_wait:bad_ratio_1h")],
        steps=good_from(0.95, 0.99),
        see="FilavivaQueueWaitBurn",
    ),
    Panel(
        title="Done within half an hour",
        text="Share of the jobs of the last hour that succeeded within half an hour, pauses "
        "included; canceled ones do not count. The objective is 99 %.",
        unit="percentunit",
        kind="stat",
        width=4,
        height=5,
        ask=[Query("1 - app:filaviva_end_to_end:bad_ratio_1h")],
        steps=good_from(0.95, 0.99),
        see="FilavivaEndToEndBurn",
    ),
    Panel(
        title="Alerts",
        text="Alerts that fire now and want somebody.",
        unit="short",
        kind="stat",
        width=3,
        height=5,
        ask=[Query(f"count({_FIRING}) or vector(0)")],
        steps=ANY,
        see="README",
    ),
    Panel(
        title="Oldest due job",
        text="How long the oldest job waits that may begin now.",
        unit="s",
        kind="stat",
        width=3,
        height=5,
        ask=[Query(age("filaviva_job_oldest_timestamp_seconds", where='state="queued"'))],
        steps=bad_from(60, 600),
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Dead letters open",
        text="Dead letters that wait for a person.",
        unit="short",
        kind="stat",
        width=3,
        height=5,
        ask=[Query(figure("filaviva_dead_letters_open"))],
        steps=ANY,
        see="FilavivaDeadLettersNew",
    ),
    Panel(
        title="Spend",
        text="What recorded model calls cost, as USD an hour at the present rate.",
        unit="currencyUSD",
        kind="stat",
        width=3,
        height=5,
        ask=[Query(f"3600 * ({rate('filaviva_llm_cost_usd_total')} or vector(0))")],
        steps=bad_from(25, 50),
        see="FilavivaSpendRateHigh",
    ),
)

_RED: Final = (
    Panel(
        title="Submissions",
        text="Jobs that came in, by what became of them. `duplicate` is the same request again: "
        "harmless.",
        unit="reqps",
        stacked=True,
        ask=[
            Query(rate("filaviva_jobs_submitted_total", "source, result"), "{{source}} {{result}}")
        ],
        see="FilavivaSubmissionBurn",
    ),
    Panel(
        title="Jobs ended",
        text="Jobs that reached a final state. Failed ones have a dead letter.",
        unit="ops",
        stacked=True,
        ask=[Query(rate("filaviva_jobs_finished_total", "state"), "{{state}}")],
        see="FilavivaEndToEndBurn",
    ),
    Panel(
        title="Attempts that fail",
        text="Share of the attempts that did not succeed, and by class of error. `lost`: the "
        "worker stopped answering.",
        unit="percentunit",
        ask=[
            Query(share(_FAILING, rate("filaviva_job_attempts_total")), "all"),
            Query(
                rate("filaviva_job_attempts_total", "error_class", _FAILED)
                + " / on () group_left () ("
                + rate("filaviva_job_attempts_total")
                + " > 0)",
                "{{error_class}}",
            ),
        ],
        steps=bad_from(0.2, 0.5),
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="From submission to end",
        text="Pauses included.",
        unit="s",
        ask=quantiles("filaviva_job_end_to_end_seconds"),
        steps=bad_from(600, 1800),
        see="FilavivaEndToEndBurn",
    ),
    Panel(
        title="Wait for a worker",
        text="From the moment a job was due to its claim.",
        unit="s",
        ask=quantiles("filaviva_job_queue_wait_seconds"),
        steps=bad_from(30, 60),
        see="FilavivaQueueWaitBurn",
    ),
    Panel(
        title="API",
        text="95 % of the requests get the first byte of their answer within this time. "
        "Long-polling (`?wait=`) waits by design.",
        unit="s",
        ask=[
            Query(
                quantile(0.95, "filaviva_http_request_duration_seconds", "route, method"),
                "{{method}} {{route}}",
            )
        ],
        steps=bad_from(1, 5),
        see="FilavivaSubmissionBurn",
    ),
)

_WAITS: Final = (
    Panel(
        title="Backlog by type",
        text="Jobs that are due and wait for a worker.",
        unit="short",
        stacked=True,
        ask=[Query(figure("filaviva_jobs", "type", 'state="queued"'), "{{type}}")],
        steps=bad_from(10_000, 100_000),
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Oldest by type",
        text="How long the oldest due job of each type waits.",
        unit="s",
        ask=[
            Query(
                age("filaviva_job_oldest_timestamp_seconds", "type", 'state="queued"'), "{{type}}"
            )
        ],
        steps=bad_from(60, 600),
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Jobs by state",
        text="Everything that has not ended. `paused`: its time has not come; `parked`: waits for "
        "a reason to go (a limit, a version that no worker reads yet).",
        unit="short",
        stacked=True,
        ask=[Query(figure("filaviva_jobs", "state"), "{{state}}")],
        see="FilavivaQueueOld",
    ),
    Panel(
        title="Retries",
        text="Pauses that began, by type.",
        unit="ops",
        stacked=True,
        ask=[Query(rate("filaviva_retry_pause_seconds_count", "type"), "{{type}}")],
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="New dead letters",
        text="By reason.",
        unit="short",
        stacked=True,
        ask=[Query(increase("filaviva_dead_letters_total", "reason"), "{{reason}}")],
        steps=ANY,
        see="FilavivaDeadLettersMany",
    ),
    Panel(
        title="Spend by type",
        text="USD an hour at the present rate.",
        unit="currencyUSD",
        stacked=True,
        ask=[Query(f"3600 * {rate('filaviva_llm_cost_usd_total', 'type')}", "{{type}}")],
        steps=bad_from(25, 50),
        see="FilavivaSpendRateHigh",
    ),
)

BOARD: Final = Board(
    uid="filaviva-overview",
    title="Overview",
    text="Are accepted jobs done in time; what waits, since when; what fails; what it costs.",
    rows=(
        Row("Now", _NOW),
        Row("Rate, errors, duration", _RED),
        Row("What waits, what fails, what it costs", _WAITS),
    ),
)
