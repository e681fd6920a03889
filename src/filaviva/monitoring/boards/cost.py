"""Cost and tokens: what a finished job costs, and what was spent for nothing."""

from typing import Final

from filaviva.monitoring.panels import (
    CHOSEN,
    Board,
    Panel,
    Query,
    Row,
    Sql,
    bad_from,
    chosen,
    increase,
    quantiles,
    rate,
    share,
    since,
)

# By attempts, since their series begin at 0: of each model's, the first call would be missing.
_SPENT: Final = f"sum(increase(filaviva_attempt_cost_usd_total{{{CHOSEN}}}[$__range]))"
_WASTED: Final = f'{CHOSEN},outcome!="succeeded"'
_DEAREST: Final = f"""\
SELECT id, type, state, attempt AS attempts, cost_usd::float8 AS cost_usd, created_at
FROM filaviva.jobs
WHERE {since("id")} AND {chosen("type")} AND $__timeFilter(created_at) AND cost_usd > 0
ORDER BY jobs.cost_usd DESC LIMIT 50"""

_SPEND: Final = (
    Panel(
        title="Spend by type",
        text="USD an hour at the present rate.",
        unit="currencyUSD",
        stacked=True,
        ask=[Query(f"3600 * {rate('filaviva_llm_cost_usd_total', 'type', CHOSEN)}", "{{type}}")],
        steps=bad_from(25, 50),
        see="FilavivaSpendRateHigh",
    ),
    Panel(
        title="Spend by model",
        text="USD an hour at the present rate.",
        unit="currencyUSD",
        stacked=True,
        ask=[
            Query(
                f"3600 * {rate('filaviva_llm_cost_usd_total', 'provider, model', CHOSEN)}",
                "{{provider}} {{model}}",
            )
        ],
        steps=bad_from(25, 50),
        see="FilavivaSpendRateHigh",
    ),
    Panel(
        title="Spent in the time shown",
        text="All recorded model calls of attempts that have ended.",
        unit="currencyUSD",
        kind="stat",
        width=4,
        ask=[Query(_SPENT)],
        see="FilavivaSpendRateHigh",
    ),
    Panel(
        title="For a finished job",
        text="All spend, also of attempts that failed, for each job that succeeded.",
        unit="currencyUSD",
        kind="stat",
        width=4,
        ask=[
            Query(
                f"{_SPENT} / (sum(increase("
                f'filaviva_jobs_finished_total{{{CHOSEN},state="succeeded"}}[$__range])) > 0)'
            )
        ],
        see="FilavivaSpendRateHigh",
    ),
    Panel(
        title="Cost of jobs",
        text="What jobs had cost when they ended, over all their attempts.",
        unit="currencyUSD",
        ask=quantiles("filaviva_job_cost_usd", CHOSEN),
        see="FilavivaSpendRateHigh",
    ),
    Panel(
        title="Tokens",
        text="Tokens a second by kind; cached ones cost less.",
        unit="ops",
        stacked=True,
        ask=[Query(rate("filaviva_llm_tokens_total", "kind"), "{{kind}}")],
        see="FilavivaSpendRateHigh",
    ),
    Panel(
        title="Tokens by model",
        text="Tokens a second, all kinds.",
        unit="ops",
        stacked=True,
        ask=[Query(rate("filaviva_llm_tokens_total", "provider, model"), "{{provider}} {{model}}")],
        see="FilavivaSpendRateHigh",
    ),
)

_WASTE: Final = (
    Panel(
        title="Waste: spent by attempts that did not succeed",
        text="USD by outcome. Steps that succeeded are not paid for again, so a `retry` wastes "
        "only its last step.",
        unit="currencyUSD",
        stacked=True,
        ask=[Query(increase("filaviva_attempt_cost_usd_total", "outcome", _WASTED), "{{outcome}}")],
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Share that is wasted",
        text="Of all that attempts spent.",
        unit="percentunit",
        ask=[
            Query(
                share(
                    rate("filaviva_attempt_cost_usd_total", where=_WASTED),
                    rate("filaviva_attempt_cost_usd_total", where=CHOSEN),
                ),
                "wasted",
            )
        ],
        steps=bad_from(0.1, 0.3),
        see="FilavivaProviderFailing",
    ),
    Panel(
        title="Duplicates suppressed",
        text="Messages that came twice or too late and had no effect: none of them was paid for.",
        unit="short",
        stacked=True,
        ask=[
            Query(
                increase("filaviva_duplicates_suppressed_total", "consumer, cause"),
                "{{consumer}} {{cause}}",
            )
        ],
        steps=bad_from(100, 1000),
        see="FilavivaDuplicatesRising",
    ),
    Panel(
        title="Dearest jobs",
        text="Of those submitted in the time shown.",
        unit="short",
        kind="table",
        width=24,
        height=9,
        ask=[Sql(_DEAREST)],
        see="FilavivaSpendRateHigh",
    ),
)

BOARD: Final = Board(
    uid="filaviva-cost",
    title="Cost and tokens",
    text="What jobs cost, by type and model; what was spent for nothing, what was saved.",
    by_type=True,
    since="now-24h",
    rows=(Row("Spend", _SPEND), Row("Waste and savings", _WASTE)),
)
