"""Objectives of service and their burn rates, as Prometheus rules.

Two windows for each alert: the long one says that it matters, the short one that it goes on.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
# Each installation says in its external labels where its runbooks are.
RUNBOOKS: Final = "{{ $externalLabels.runbooks }}"
# Fewer events than this within the long window prove nothing.
_FEW: Final = 10
# A drill's jobs fail on purpose: nobody was promised anything about them.
_USERS: Final = 'type!="filaviva.drill"'


@dataclass(frozen=True, slots=True)
class Objective:
    """A share of events that should be good; `bad` and `all` are rates over a window `{w}`."""

    name: str
    word: str
    target: float
    bad: str
    every: str
    summary: str


@dataclass(frozen=True, slots=True)
class Burn:
    """How fast the budget of 30 days may go before somebody is told."""

    severity: str
    factor: float
    long: str
    short: str
    held: str


OBJECTIVES: Final = (
    Objective(
        name="FilavivaSubmissionBurn",
        word="submission",
        target=0.999,
        bad="sum(rate(filaviva_http_request_duration_seconds_count"
        '{route=~"/v1/jobs|/v1/events",method="POST",status=~"5.."}[{w}])) or vector(0)',
        every="sum(rate(filaviva_http_request_duration_seconds_count"
        '{route=~"/v1/jobs|/v1/events",method="POST"}[{w}]))',
        summary="Submissions are answered with 5xx: {{ $value | humanizePercentage }} of them",
    ),
    Objective(
        name="FilavivaQueueWaitBurn",
        word="queue_wait",
        target=0.99,
        bad=f"sum(rate(filaviva_job_queue_wait_seconds_count{{{_USERS}}}[{{w}}]))"
        f' - sum(rate(filaviva_job_queue_wait_seconds_bucket{{{_USERS},le="60.0"}}[{{w}}]))',
        every=f"sum(rate(filaviva_job_queue_wait_seconds_count{{{_USERS}}}[{{w}}]))",
        summary="Jobs wait over a minute for a worker: {{ $value | humanizePercentage }} of them",
    ),
    Objective(
        name="FilavivaEndToEndBurn",
        word="end_to_end",
        target=0.99,
        bad=f'sum(rate(filaviva_job_end_to_end_seconds_count{{{_USERS},state!="canceled"}}[{{w}}]))'
        " - sum(rate(filaviva_job_end_to_end_seconds_bucket"
        f'{{{_USERS},state="succeeded",le="1800.0"}}[{{w}}]))',
        every=f'sum(rate(filaviva_job_end_to_end_seconds_count{{{_USERS},state!="canceled"}}[{{w}}]))',
        summary="Jobs fail or take over half an hour: {{ $value | humanizePercentage }} of them",
    ),
)
BURNS: Final = (
    Burn("page", 14.4, "1h", "5m", "2m"),
    Burn("page", 6, "6h", "30m", "15m"),
    Burn("ticket", 3, "1d", "2h", "1h"),
    Burn("ticket", 1, "3d", "6h", "3h"),
)


def rules() -> str:
    """Write the rules file."""
    lines = ["# Written by `python -m filaviva.cli.reference`.", "groups:"]
    for objective in OBJECTIVES:
        lines += [f"  - name: filaviva-objective-{objective.word}", "    rules:"]
        for window in WINDOWS:
            lines += _recorded(objective, window)
        for burn in BURNS:
            lines += _alert(objective, burn)
    return "\n".join(lines) + "\n"


def ratio(objective: Objective, window: str) -> str:
    """Name the recorded share of bad events."""
    return f"app:filaviva_{objective.word}:bad_ratio_{window}"


def _events(objective: Objective, window: str) -> str:
    return objective.every.replace("{w}", window)


def _recorded(objective: Objective, window: str) -> Iterator[str]:
    bad = objective.bad.replace("{w}", window)
    yield f"      - record: {ratio(objective, window)}"
    yield f"        expr: {_quoted(f'({bad}) / ({_events(objective, window)} > 0)')}"


def _alert(objective: Objective, burn: Burn) -> Sequence[str]:
    threshold = round(burn.factor * (1 - objective.target), 6)
    over = " and ".join(
        f"{ratio(objective, window)} > {threshold:g}" for window in (burn.long, burn.short)
    )
    enough = f"({_events(objective, burn.long)}) * {_seconds(burn.long)} > {_FEW}"
    return (
        f"      - alert: {objective.name}",
        f"        expr: {_quoted(f'{over} and {enough}')}",
        f"        for: {burn.held}",
        f"        labels: {{severity: {burn.severity}, burn: {_quoted(f'{burn.factor:g}')}}}",
        "        annotations:",
        f"          summary: {_quoted(objective.summary)}",
        f"          description: {_quoted(_description(objective, burn))}",
        f"          runbook_url: {_quoted(f'{RUNBOOKS}/{objective.name}.md')}",
    )


def _description(objective: Objective, burn: Burn) -> str:
    return (
        f"The objective is {objective.target:.4g} over 30 days; for {burn.long} its budget has "
        f"gone {burn.factor:g} times too fast, and it still does."
    )


def _seconds(window: str) -> int:
    return int(window[:-1]) * {"m": 60, "h": 3600, "d": 86_400}[window[-1]]


def _quoted(text: str) -> str:
    return json.dumps(text)
