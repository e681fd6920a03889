"""The claims, each checked against what the services, the database and the sandbox say."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from itertools import pairwise

from invoices.app import POLICY
from invoices.demo.evidence import Evidence, Json, Trail, moment
from invoices.demo.plan import CASES, CORRECTED, MISREAD, SUM_STORED, TEN, WRONG


@dataclass(frozen=True, slots=True)
class Fact:
    """One claim, what was found, and whether that is what was claimed."""

    claim: str
    found: str
    holds: bool


def check(evidence: Evidence) -> list[Fact]:
    """Judge every claim."""
    return [
        _all_succeeded(evidence),
        _batch_followed(evidence),
        _stored_once(evidence),
        _one_job_for_one_key(evidence),
        _attempts_as_planned(evidence),
        _pauses_long_enough(evidence),
        _retry_after_kept(evidence),
        _another_worker_took_over(evidence),
        _nothing_paid_twice(evidence),
        _costs_agree(evidence),
        _letter_names_its_cause(evidence),
        _letters_closed(evidence),
        _second_replay_refused(evidence),
        _one_alert_for_each_cause(evidence),
    ]


def _all_succeeded(evidence: Evidence) -> Fact:
    states = [trail.job["status"] for trail in evidence.trails.values()]
    done = states.count("succeeded")
    ten = sum(evidence.trails[case.document].job["status"] == "succeeded" for case in TEN)
    return Fact(
        "all ten documents and the corrected one succeeded",
        f"{ten} of {len(TEN)}, and {done} of {len(CASES)} in all",
        done == len(states) == len(CASES),
    )


def _batch_followed(evidence: Evidence) -> Fact:
    batch, before = evidence.batch, evidence.notes.batch_when_two_were_dead
    messages = [one["progress"]["message"] for one in (before, batch)]
    cost = sum((Decimal(evidence.trails[case.document].job["costUsd"]) for case in TEN), Decimal(0))
    return Fact(
        "the batch showed 9 of 10 while one was dead, and 10 of 10 once that was replayed",
        f"{', then '.join(messages)}; {batch['status']}, USD {batch['costUsd']} for all ten",
        messages == ["9 of 10 completed", "10 of 10 completed"]
        and batch["status"] == "succeeded"
        and Decimal(batch["costUsd"]) == cost,
    )


def _stored_once(evidence: Evidence) -> Fact:
    stored, wanted = evidence.stored, len(CASES)
    counts = (stored.rows, stored.keys, stored.access_keys)
    return Fact(
        "every effect happened once: one row each, and the sum is exact",
        f"{stored.rows} rows, {stored.access_keys} different documents, BRL {stored.total}",
        counts == (wanted, wanted, wanted) and stored.total == SUM_STORED,
    )


def _one_job_for_one_key(evidence: Evidence) -> Fact:
    again = evidence.notes.duplicate
    return Fact(
        "the same Idempotency-Key twice is one batch",
        f"the second answer: batch …{again['jobId'][-6:]}, duplicate {again['duplicate']}",
        again["duplicate"] is True and again["jobId"] == evidence.batch["jobId"],
    )


def _attempts_as_planned(evidence: Evidence) -> Fact:
    wrong = [
        f"{case.document}: {', '.join(map(str, evidence.trails[case.document].outcomes()))}"
        for case in CASES
        if evidence.trails[case.document].outcomes() != case.outcomes
    ]
    total = sum(len(case.outcomes) for case in CASES)
    lost = sum(len(trail.lost()) for trail in evidence.trails.values())
    return Fact(
        "every job took the attempts its faults call for",
        "; ".join(wrong) or f"{total} as planned, and {lost} lost with the killed worker",
        not wrong,
    )


def _pauses_long_enough(evidence: Evidence) -> Fact:
    pauses = [pause for trail in evidence.trails.values() for pause in _pauses(trail)]
    late = max((taken - planned for _, planned, taken in pauses), default=0.0)
    short = [p for p in pauses if p[1] < p[0] or p[2] < p[1]]
    return Fact(
        "no pause was shorter than base * 2**(n-1), and none was cut short",
        f"{len(pauses)} pauses of {min(p[1] for p in pauses):.1f} to "
        f"{max(p[1] for p in pauses):.1f} s, at most {late:.2f} s late"
        if pauses
        else "no pauses",
        bool(pauses) and not short,
    )


def _pauses(trail: Trail) -> Iterator[tuple[float, float, float]]:
    """For each repeated attempt: the formula's floor, the pause planned, the pause taken."""
    retries = 0
    for failed, after in pairwise(trail.attempts):
        if failed["outcome"] != "retry":
            continue
        retries += 1
        floor = min(POLICY.base * 2 ** (retries - 1), POLICY.cap)
        taken = moment(after["startedAt"]) - moment(failed["finishedAt"])
        yield floor, float(failed["pauseSeconds"]), taken.total_seconds()


def _retry_after_kept(evidence: Evidence) -> Fact:
    asked = [call for call in evidence.calls if call["behaviour"].startswith("429")]
    early = [call["document"] for call in asked if not _came_later(evidence, call)]
    return Fact(
        "Retry-After was kept, given as seconds and as a date",
        f"came too early: {', '.join(early)}"
        if early
        else f"{len(asked)} times ({', '.join(call['behaviour'] for call in asked)})",
        bool(asked) and not early,
    )


def _came_later(evidence: Evidence, refused: Json) -> bool:
    """Return whether the next call for this job came no sooner than the provider had asked."""
    seconds = float(refused["behaviour"].partition(":")[2])
    later = [
        moment(call["at"])
        for call in evidence.calls
        if call["jobId"] == refused["jobId"] and call["number"] > refused["number"]
    ]
    return bool(later) and (min(later) - moment(refused["at"])).total_seconds() >= seconds


def _another_worker_took_over(evidence: Evidence) -> Fact:
    killing = evidence.notes.killing
    lost = {name for name, trail in evidence.trails.items() if trail.lost()}
    moved = all(
        trail.attempts[-1]["worker"] != attempt["worker"]
        for trail in evidence.trails.values()
        for attempt in trail.lost()
    )
    return Fact(
        f"worker {killing.pid}, killed with SIGKILL, was replaced in its jobs by another",
        f"taken over: {', '.join(sorted(lost)) or 'nothing'}",
        moved and lost == set(killing.documents),
    )


def _nothing_paid_twice(evidence: Evidence) -> Fact:
    taken = [evidence.trails[name] for name in evidence.notes.killing.documents]
    kept = all(_read_in(trail) == trail.lost()[0]["number"] for trail in taken if trail.lost())
    once = all(len(evidence.charged(trail.job["jobId"])) == 1 for trail in taken)
    again = [call["document"] for call in evidence.charged() if call["keyChargedBefore"]]
    return Fact(
        "no finished step ran again: after the kill no model call was paid for twice",
        f"charged again under the same key: {', '.join(again) or 'nothing'}"
        " (the wrong answer that was asked for anew)",
        kept and once and again == [MISREAD.document],
    )


def _read_in(trail: Trail) -> int:
    return int(next(step["attempt"] for step in trail.steps if step["name"] == "read"))


def _costs_agree(evidence: Evidence) -> Fact:
    jobs = sum((Decimal(t.job["costUsd"]) for t in evidence.trails.values()), Decimal(0))
    ledger = sum((Decimal(call["chargedUsd"]) for call in evidence.calls), Decimal(0))
    return Fact(
        "the jobs' cost is what the provider's ledger says, to the last digit",
        f"jobs USD {jobs.normalize():f}, ledger USD {ledger.normalize():f} "
        f"for {len(evidence.charged())} calls",
        jobs == ledger > 0,
    )


def _letter_names_its_cause(evidence: Evidence) -> Fact:
    job_id = evidence.trails[WRONG.document].job["jobId"]
    letters = [letter for letter in evidence.letters if letter["jobId"] == job_id]
    message = letters[0]["error"]["message"] if letters else "no dead letter"
    named = "<inutNFe>" in message and "expected one of <NFe>" in message
    return Fact(
        "the document that is no invoice died at once, and a person can read why",
        message.partition(": ")[2] or message,
        named and [letter["reason"] for letter in letters] == ["terminal"],
    )


def _letters_closed(evidence: Evidence) -> Fact:
    states = [letter["status"] for letter in evidence.letters]
    corrected = evidence.trails[WRONG.document].job.get("result") or {}
    return Fact(
        f"one dead letter replayed as it was, one corrected to {CORRECTED}; both are resolved",
        f"{', '.join(states)}; corrected to number {corrected.get('number')}",
        states == ["resolved", "resolved"] and f"nfe-{corrected.get('number')}" == CORRECTED,
    )


def _second_replay_refused(evidence: Evidence) -> Fact:
    status = evidence.notes.second_replay_status
    return Fact(
        "a second replay of the same dead letter is refused",
        f"status {status}",
        status == HTTPStatus.CONFLICT,
    )


def _one_alert_for_each_cause(evidence: Evidence) -> Fact:
    causes = ("inutNFe", "outside its schema")
    found = [sum(cause in text for text in evidence.alerts) for cause in causes]
    return Fact(
        "one alert for each cause reached the channel (a local stand-in for Slack)",
        f"{len(evidence.alerts)} messages; naming the cause: {found[0]} and {found[1]}",
        found == [1, 1] and len(evidence.alerts) == len(causes),
    )
