"""The facts of a drill hold only for what they claim, and say what to do otherwise."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from filaviva.drilling.evidence import (
    Alert,
    Attempt,
    Cut,
    Evidence,
    Group,
    Notice,
    Seen,
    Submitted,
    Told,
    pauses,
    recovered,
)
from filaviva.drilling.facts import check
from filaviva.drilling.plan import Kind
from filaviva.drilling.provider import Calls

BEGAN = datetime(2026, 11, 30, 12, tzinfo=UTC)
ENDED = BEGAN + timedelta(seconds=120)
KINDS: tuple[Kind, ...] = ("before", "patient", "impatient", "late")
JOBS = {kind: UUID(int=n) for n, kind in enumerate(KINDS, 1)}


def attempt(
    kind: Kind, number: int, start: float, end: str, pause: float | None = None, **more: Any
) -> Attempt:
    """An attempt of 0.1 s that began so many seconds after the cut."""
    began = BEGAN + timedelta(seconds=start)
    return Attempt(
        JOBS[kind],
        number,
        began,
        began + timedelta(seconds=0.1),
        end,
        more.get("error_class", "connection" if end == "retry" else None),
        pause,
    )


ATTEMPTS = (
    attempt("before", 1, -2, "succeeded"),
    attempt("patient", 1, 0, "retry", 0.7),
    attempt("patient", 2, 0.9, "retry", 1.2),
    attempt("patient", 3, 121, "succeeded"),
    attempt("late", 1, 119, "retry", 0.5),
    attempt("late", 2, 120.2, "succeeded"),
)
GOOD = Evidence(
    seconds=120,
    cut=Cut(BEGAN, ENDED, since=1000.0, until=1120.0, calls=0),
    submitted=[Submitted(kind, n, frozenset((JOBS[kind],)), 1) for n, kind in enumerate(KINDS)],
    states=dict.fromkeys(JOBS.values(), "succeeded"),
    calls=Calls(4, 0),
    attempts=[*ATTEMPTS[:3], attempt("patient", 3, 2.4, "retry", 2.1), *ATTEMPTS[4:]],
    groups=[Group(UUID(int=9), 1, "resolved", "attempts_exhausted", "ConnectError")],
    notices=[Notice("sent", 1, None)],
    slack=None,
    replayed={"total": 1, "succeeded": 1},
    recovered=4.0,
    alert=Alert(1050.0, 1230.0),
    told=Told(1, 1),
    seen=[Seen("Retries", 2.0, 0.0)],
)
NAMES = {
    "kept": "every accepted job has succeeded",
    "one job": "the same Idempotency-Key twice is one job",
    "effect": "each job had its effect once",
    "cut": "the provider was away for 120 s",
    "planned": "pauses grew as planned",
    "on time": "attempts began when their pause was over",
    "group": "what died of one cause is one failure group",
    "slack": "Slack was told of that group once",
    "replay": "the group was sent back, and is resolved",
    "alert": "FilavivaProviderFailing fired in the cut, and was over after it",
    "told": "Alertmanager told Slack once that it fires, once that it is over",
    "boards": "the dashboards showed the cut, and that it is over",
    "recovered": "time to recover, from the provider's return until nothing waits",
    "left": "nothing of the drill is left to do",
}


def wrong(**changes: Any) -> set[str]:
    """Name the facts that do not hold of the changed story."""
    facts = check(replace(GOOD, **changes))
    failed = {fact.name for fact in facts if not fact.holds}
    assert all(fact.next_step for fact in facts if not fact.holds)
    return {word for word, name in NAMES.items() if name in failed}


def test_a_good_drill_passes() -> None:
    assert {fact.name for fact in check(GOOD)} == {*NAMES.values()}
    assert wrong() == set()


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ({"states": {**GOOD.states, JOBS["late"]: "queued"}}, {"kept"}),
        ({"states": {}}, {"kept"}),
        ({"calls": Calls(5, 0)}, {"effect"}),
        ({"calls": Calls(4, 2)}, set()),  # a repeat under its key has no effect
        ({"cut": replace(GOOD.cut, calls=1)}, {"cut"}),
        ({"groups": []}, {"group", "replay"}),
        ({"groups": [*GOOD.groups, *GOOD.groups]}, {"group"}),
        ({"groups": [replace(GOOD.groups[0], state="open")]}, {"replay"}),
        ({"notices": []}, {"slack"}),
        ({"notices": [Notice("sent", 1, None)] * 2}, {"slack"}),
        ({"notices": [Notice("waiting", 3, "Slack cannot be reached")]}, {"slack"}),
        ({"slack": 2}, {"slack"}),
        ({"slack": 1, "notices": []}, set()),
        ({"replayed": {"total": 1, "succeeded": 0}}, {"replay"}),
        ({"alert": Alert()}, {"alert"}),
        ({"alert": Alert(1130.0, 1230.0)}, {"alert"}),  # too late
        ({"alert": Alert(1050.0, None)}, {"alert"}),
        ({"told": Told(2, 1)}, {"told"}),
        ({"told": Told(1, 1, failed=1)}, {"told"}),
        ({"seen": [Seen("Retries", 0.0, 0.0)]}, {"boards"}),
        ({"seen": [Seen("Retries", None, None)]}, {"boards"}),
        ({"seen": [Seen("Retries", 2.0, 0.5)]}, {"boards"}),
        ({"seen": []}, {"boards"}),
        ({"recovered": None}, {"recovered"}),
        ({"recovered": 8.0}, {"recovered"}),
        ({"unsettled": 1}, {"left"}),
    ],
)
def test_what_is_not_so_is_told(change: dict[str, Any], fails: set[str]) -> None:
    assert wrong(**change) == fails


@pytest.mark.parametrize(
    ("change", "name", "service"),
    [
        ({"attempts": []}, "planned", "retry-scheduler"),
        ({"attempts": []}, "on time", "retry-scheduler"),
        ({"groups": [], "notices": []}, "group", "dlq-handler"),
        ({"groups": [], "notices": []}, "slack", "dlq-handler"),
        ({"groups": [], "notices": []}, "replay", "dlq-handler"),
    ],
)
def test_where_nothing_came_whoever_should_have_done_it_is_looked_for(
    change: dict[str, Any], name: str, service: str
) -> None:
    facts = {fact.name: fact for fact in check(replace(GOOD, **change))}

    assert facts[NAMES[name]].next_step == f"does a {service} run and work? `filaviva doctor`"


def test_a_second_job_for_one_key_is_told() -> None:
    one = GOOD.submitted[0]
    twice = replace(one, ids=frozenset((*one.ids, UUID(int=77))))

    assert wrong(submitted=[twice, *GOOD.submitted[1:]]) >= {"kept", "one job"}
    assert wrong(submitted=[replace(one, duplicates=0), *GOOD.submitted[1:]]) == {"one job"}


def test_slack_that_is_not_configured_is_called_so() -> None:
    notice = Notice("dropped", 0, "no webhook configured (FILAVIVA_SLACK__WEBHOOK_URL)")

    (fact,) = [fact for fact in check(replace(GOOD, notices=[notice])) if not fact.holds]

    assert fact.found == "not configured"
    assert "FILAVIVA_SLACK__WEBHOOK_URL" in str(fact.next_step)


def test_what_cannot_be_looked_at_does_not_hold() -> None:
    why, step = "no Prometheus was named", "--prometheus URL"
    alert, told = Alert(why=why, next_step=step), Told(why=why, next_step=step)

    facts = check(replace(GOOD, alert=alert, told=told, seen_why=why))

    unseen = [fact for fact in facts if not fact.holds]
    assert [fact.found for fact in unseen] == [f"not looked at: {why}"] * 3
    assert {fact.next_step for fact in unseen} == {step}


def test_pauses_outside_their_bounds_and_late_attempts_are_told() -> None:
    short = [attempt("patient", 1, 0, "retry", 0.3), attempt("patient", 2, 0.5, "succeeded")]
    late = [attempt("patient", 1, 0, "retry", 0.6), attempt("patient", 2, 9, "succeeded")]
    early = [attempt("patient", 1, 0, "retry", 0.6), attempt("patient", 2, 0.4, "succeeded")]

    assert "planned" in wrong(attempts=short)
    assert "on time" in wrong(attempts=late)
    assert "on time" in wrong(attempts=early)
    assert {"planned", "on time"} <= wrong(attempts=[])


def test_a_lost_worker_changes_no_pause_of_the_plan() -> None:
    found = pauses(
        [
            attempt("patient", 1, 0, "retry", 0.7),
            attempt("patient", 2, 1, "lost", 1.5, error_class="lost"),
            attempt("patient", 3, 3, "retry", 9.0, error_class="lost"),
            attempt("patient", 4, 15, "retry", 1.3),
        ]
    )

    assert [(each.n, each.planned) for each in found] == [(1, 0.7), (2, 1.3)]
    assert found[1].late is None


def test_recovery_is_counted_from_the_end_of_the_cut_to_the_last_success() -> None:
    waited = {JOBS["patient"], JOBS["late"]}

    assert recovered(ATTEMPTS, waited, ENDED) == pytest.approx(1.1)
    assert recovered(ATTEMPTS[:-1], waited, ENDED) is None
    assert recovered((), set(), ENDED) is None
