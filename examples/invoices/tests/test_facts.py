"""Every fact of the demonstration holds for good evidence, and fails for bad."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from invoices.demo.evidence import Evidence, Killing, Notes, Trail
from invoices.demo.facts import check
from invoices.demo.plan import CALM, CASES, MISREAD, SUM_STORED, WRONG
from invoices.demo.truth import Stored

KILLED = CALM[0].document


def at(seconds: float) -> str:
    return f"2026-01-01T00:{int(seconds // 60):02}:{seconds % 60:06.3f}Z"


def attempt(number: int, outcome: str, worker: str = "w2") -> dict[str, Any]:
    return {
        "number": number,
        "worker": worker,
        "outcome": outcome,
        "startedAt": at(10 * number),
        "finishedAt": at(10 * number + 1),
        "pauseSeconds": 5.0 if outcome == "retry" else None,
    }


def trail(name: str, outcomes: tuple[str, ...]) -> Trail:
    lost = (attempt(1, "lost", "w1"),) if name == KILLED else ()
    ended = [attempt(len(lost) + n, outcome) for n, outcome in enumerate(outcomes, start=1)]
    result = {"number": "47671"} if name == WRONG.document else {"number": "1"}
    job = {"jobId": f"job-{name}", "status": "succeeded", "costUsd": "0.01", "result": result}
    return Trail(job, (*lost, *ended), ({"name": "read", "attempt": 1},))


def batch(done: str) -> dict[str, Any]:
    return {
        "jobId": "batch",
        "status": "succeeded",
        "costUsd": "0.11",
        "progress": {"message": f"{done} of 10 completed"},
    }


def call(number: int, name: str, behaviour: str = "ok", *, again: bool = False) -> dict[str, Any]:
    charged = behaviour in ("ok", "bad_output")
    return {
        "number": number,
        "at": at(number * 10),
        "document": name,
        "behaviour": behaviour,
        "jobId": f"job-{name}",
        "outputTokens": 10 if charged else 0,
        "chargedUsd": "0.01" if charged else "0",
        "keyChargedBefore": again,
    }


@pytest.fixture
def good() -> Evidence:
    trails = {case.document: trail(case.document, case.outcomes) for case in CASES}
    trails[MISREAD.document].job["costUsd"] = "0.02"
    names = [case.document for case in CASES]
    calls = [
        call(1, "nfe-1687", "429:2"),
        call(2, MISREAD.document, "bad_output"),
        *(call(n, name, again=name == MISREAD.document) for n, name in enumerate(names, start=3)),
    ]
    error = {"message": "the document's root is <inutNFe>; expected one of <NFe>, <nfeProc>"}
    letters = (
        {"jobId": f"job-{WRONG.document}", "reason": "terminal", "status": "resolved"},
        {"jobId": f"job-{MISREAD.document}", "reason": "terminal", "status": "resolved"},
    )
    return Evidence(
        notes=Notes(Killing(1, (KILLED,)), batch("9"), {"jobId": "batch", "duplicate": True}, 409),
        batch=batch("10"),
        trails=trails,
        calls=tuple(calls),
        letters=tuple(letter | {"error": error} for letter in letters),
        stored=Stored(11, 11, 11, SUM_STORED),
        alerts=("root is <inutNFe>", "the model's answer is outside its schema"),
    )


def broken(evidence: Evidence) -> list[str]:
    return [fact.claim for fact in check(evidence) if not fact.holds]


def test_every_fact_holds_for_good_evidence(good):
    assert broken(good) == []


def test_a_job_that_did_not_succeed_is_found(good):
    good.trails["nfe-1"].job["status"] = "running"

    assert broken(good) == ["all ten documents and the corrected one succeeded"]


@pytest.mark.parametrize(
    "stored",
    [
        Stored(12, 12, 11, SUM_STORED),
        Stored(12, 11, 11, SUM_STORED),
        Stored(10, 10, 10, SUM_STORED),
        Stored(11, 11, 11, SUM_STORED + Decimal("0.01")),
    ],
)
def test_a_doubled_missing_or_wrong_effect_is_found(good, stored):
    assert broken(replace(good, stored=stored)) == [
        "every effect happened once: one row each, and the sum is exact"
    ]


def test_a_second_job_for_one_key_is_found(good):
    good.notes.duplicate["duplicate"] = False

    assert broken(good) == ["the same Idempotency-Key twice is one batch"]


@pytest.mark.parametrize(
    "change",
    [{"status": "running"}, {"costUsd": "0.10"}, {"progress": {"message": "9 of 10 completed"}}],
)
def test_a_batch_that_does_not_follow_its_items_is_found(good, change):
    good.batch.update(change)

    assert broken(good) == [
        "the batch showed 9 of 10 while one was dead, and 10 of 10 once that was replayed"
    ]


def test_an_attempt_too_many_is_found(good):
    one = good.trails["nfe-1"]
    good.trails["nfe-1"] = replace(one, attempts=(*one.attempts, attempt(2, "succeeded")))

    assert broken(good) == ["every job took the attempts its faults call for"]


@pytest.mark.parametrize("change", [{"pauseSeconds": 0.9}, {"pauseSeconds": 9.5}])
def test_a_short_pause_is_found(good, change):
    good.trails["nfe-47605"].attempts[0].update(change)

    assert broken(good) == [
        "no pause was shorter than base * 2**(n-1), and none was cut short",
    ]


def test_a_call_before_retry_after_is_found(good):
    good.calls[3].update(document="nfe-1687", jobId="job-nfe-1687", at=at(11))

    assert "Retry-After was kept, given as seconds and as a date" in broken(good)


def test_a_job_that_nobody_took_over_is_found(good):
    good.trails[KILLED].attempts[1]["worker"] = "w1"

    assert broken(good) == ["worker 1, killed with SIGKILL, was replaced in its jobs by another"]


def test_a_step_that_was_paid_for_twice_is_found(good):
    twice = call(50, KILLED, again=True) | {"chargedUsd": "0"}

    assert broken(replace(good, calls=(*good.calls, twice))) == [
        "no finished step ran again: after the kill no model call was paid for twice"
    ]


def test_a_step_that_ran_again_is_found(good):
    good.trails[KILLED].steps[0]["attempt"] = 2

    assert broken(good) == [
        "no finished step ran again: after the kill no model call was paid for twice"
    ]


def test_a_cost_that_the_ledger_does_not_know_is_found(good):
    good.trails["nfe-1"].job["costUsd"] = "0.0100001"
    good.batch["costUsd"] = "0.1100001"

    assert broken(good) == ["the jobs' cost is what the provider's ledger says, to the last digit"]


def test_a_message_that_explains_nothing_is_found(good):
    good.letters[0]["error"] = {"message": "ValueError"}

    assert broken(good) == [
        "the document that is no invoice died at once, and a person can read why"
    ]


def test_an_open_letter_is_found(good):
    good.letters[1]["status"] = "open"

    assert [claim[:38] for claim in broken(good)] == [
        "one dead letter replayed as it was, one"[:38]
    ]


def test_a_second_replay_that_was_let_through_is_found(good):
    notes = replace(good.notes, second_replay_status=202)

    assert broken(replace(good, notes=notes)) == [
        "a second replay of the same dead letter is refused"
    ]


@pytest.mark.parametrize("alerts", [(), ("inutNFe",), ("inutNFe", "inutNFe", "outside its schema")])
def test_a_missing_or_doubled_alert_is_found(good, alerts):
    assert broken(replace(good, alerts=alerts)) == [
        "one alert for each cause reached the channel (a local stand-in for Slack)"
    ]
