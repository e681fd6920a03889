"""The facts of a drill, checked on what was seen; one that does not hold names the next step."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from filaviva.drill.contract import POLICY, DrillCall
from filaviva.drilling.evidence import Evidence, Pause, pauses
from filaviva.drilling.plan import TENANT, TOLERANCE_SECONDS
from filaviva.operations.drills import SENT_TWICE

# A float loses what a timestamp keeps.
_HAIR: Final = 0.002
_NO_SCHEDULER: Final = "does a retry-scheduler run and work? `filaviva doctor`"
_NO_HANDLER: Final = "does a dlq-handler run and work? `filaviva doctor`"
_LIST: Final = f"filaviva jobs list --tenant {TENANT} --type {DrillCall.contract_type}"


@dataclass(frozen=True, slots=True)
class Fact:
    """One claim, what was found, what is expected, and whether they agree."""

    name: str
    found: str
    expected: str
    holds: bool
    next_step: str | None = None


def check(evidence: Evidence) -> list[Fact]:
    """Judge every claim."""
    return [
        _kept(evidence),
        _one_job(evidence),
        _one_effect(evidence),
        _real(evidence),
        _planned(evidence),
        _on_time(evidence),
        _one_group(evidence),
        _slack(evidence),
        _replayed(evidence),
        _alert(evidence),
        _told(evidence),
        _boards(evidence),
        _recovered(evidence),
        _nothing_left(evidence),
    ]


def _kept(evidence: Evidence) -> Fact:
    states = [evidence.states.get(each, "lost") for each in sorted(evidence.ids())]
    others = {state: states.count(state) for state in sorted({*states} - {"succeeded"})}
    rest = "".join(f", {count} {state}" for state, count in others.items())
    return Fact(
        "every accepted job has succeeded",
        f"{states.count('succeeded')} of {len(evidence.submitted)}{rest}",
        f"all {len(evidence.submitted)}",
        len(states) == len(evidence.submitted) and not others,
        f"{_LIST}; docs/runbooks/workers.md",
    )


def _one_job(evidence: Evidence) -> Fact:
    wrong = [each for each in evidence.submitted if len(each.ids) != 1 or each.duplicates != 1]
    count = len(evidence.submitted)
    return Fact(
        SENT_TWICE,
        f"{count} keys sent twice over HTTP, {len(evidence.ids())} jobs",
        f"{count} jobs, each second answer a duplicate",
        not wrong and len(evidence.ids()) == count,
        "docs/architecture/guarantees.md says how a key is kept",
    )


def _one_effect(evidence: Evidence) -> Fact:
    calls, count = evidence.calls, len(evidence.submitted)
    repeats = f", {calls.repeats} repeated under their key" if calls.repeats else ""
    return Fact(
        "each job had its effect once",
        f"{calls.effects} effects at the provider{repeats}",
        f"{count}: one for each job",
        calls.effects == count,
        f"compare the provider's calls with `{_LIST}`",
    )


def _real(evidence: Evidence) -> Fact:
    cut = evidence.cut
    failed = [
        each
        for each in evidence.attempts
        if each.finished_at is not None
        and cut.began <= each.finished_at <= cut.ended
        and each.outcome in ("retry", "failed")
    ]
    return Fact(
        f"the provider was away for {evidence.seconds:g} s",
        f"{cut.calls} calls came through, {len(failed)} attempts failed",
        "no call, some failed attempts",
        cut.calls == 0 and bool(failed),
        "something else answers where FILAVIVA_DRILL__PROVIDER_URL leads",
    )


def _planned(evidence: Evidence) -> Fact:
    found = pauses(evidence.attempts)
    wrong = [each for each in found if not _as_planned(each)]
    return Fact(
        "pauses grew as planned",
        f"{len(found)} pauses: {_grown(found)}" + (f"; {len(wrong)} outside" if wrong else ""),
        f"min({POLICY.base:g} s * 2^(n-1), {POLICY.cap:g} s) + 0 to {POLICY.jitter:g} s",
        bool(found) and not wrong,
        "the table `contracts` says which policy the retry-scheduler goes by: filaviva setup"
        if found
        else _NO_SCHEDULER,
    )


def _as_planned(pause: Pause) -> bool:
    least = min(POLICY.base * 2.0 ** (pause.n - 1), POLICY.cap)
    return least - _HAIR <= pause.planned <= least + POLICY.jitter + _HAIR


def _grown(found: Sequence[Pause]) -> str:
    """Name the usual pause after each failure."""
    by_n = {n: [each.planned for each in found if each.n == n] for n in {one.n for one in found}}
    return ", ".join(f"{median(by_n[n]):.1f}" for n in sorted(by_n)[:8]) or "none"


def _on_time(evidence: Evidence) -> Fact:
    late = [each.late for each in pauses(evidence.attempts) if each.late is not None]
    found = "no attempt followed a pause"
    if late:
        found = f"{median(late):.2f} s late as a rule, {max(late):.2f} s at most"
    return Fact(
        "attempts began when their pause was over",
        found,
        f"0 to {TOLERANCE_SECONDS:g} s late",
        bool(late) and min(late) >= -_HAIR and max(late) <= TOLERANCE_SECONDS,
        "docs/runbooks/FilavivaPausesLate.md" if late else _NO_SCHEDULER,
    )


def _one_group(evidence: Evidence) -> Fact:
    wanted = len(evidence.ids("impatient"))
    letters = sum(group.letters for group in evidence.groups)
    causes = ", ".join(f"{one.error_code} ({one.reason})" for one in evidence.groups)
    return Fact(
        "what died of one cause is one failure group",
        f"{letters} dead letters in {len(evidence.groups)} group(s): {causes or 'none'}",
        f"{wanted} in one group, attempts_exhausted",
        letters == wanted and [group.reason for group in evidence.groups] == ["attempts_exhausted"],
        "filaviva dlq groups; docs/runbooks/FilavivaDeadLettersNew.md" if letters else _NO_HANDLER,
    )


def _slack(evidence: Evidence) -> Fact:
    name, expected = "Slack was told of that group once", "one message"
    if evidence.slack is not None:
        return Fact(
            name,
            f"{evidence.slack} message(s) at the stand-in",
            expected,
            evidence.slack == 1,
            "docs/runbooks/FilavivaNotificationsFailing.md",
        )
    sent = [each for each in evidence.notices if each.state == "sent"]
    waiting = [each for each in evidence.notices if each.state != "sent"]
    if waiting and "no webhook" in (waiting[0].error or ""):
        found, step = "not configured", "give the dlq-handler FILAVIVA_SLACK__WEBHOOK_URL"
        return Fact(name, found, expected, holds=False, next_step=step)
    found = f"{len(sent)} sent"
    if waiting:
        found += f", {len(waiting)} {waiting[0].state}: {waiting[0].error or 'not tried yet'}"
    return Fact(
        name,
        found,
        expected,
        len(sent) == 1 and not waiting,
        "docs/runbooks/FilavivaNotificationsFailing.md" if evidence.groups else _NO_HANDLER,
    )


def _replayed(evidence: Evidence) -> Fact:
    wanted = len(evidence.ids("impatient"))
    states = ", ".join(sorted({group.state for group in evidence.groups})) or "missing"
    done = evidence.replayed.get("succeeded", 0)
    return Fact(
        "the group was sent back, and is resolved",
        f"{done} of {evidence.replayed.get('total', 0)} replayed letters succeeded; "
        f"the group is {states}",
        f"all {wanted}; resolved",
        done == wanted and states == "resolved",
        "filaviva replays list; docs/howto/replay-a-dead-letter.md"
        if evidence.groups
        else _NO_HANDLER,
    )


def _alert(evidence: Evidence) -> Fact:
    name = "FilavivaProviderFailing fired in the cut, and was over after it"
    expected = "fired within the cut, over after it"
    alert, cut = evidence.alert, evidence.cut
    if alert.why is not None:
        found = f"not looked at: {alert.why}"
        return Fact(name, found, expected, holds=False, next_step=alert.next_step)
    step = "docs/runbooks/FilavivaProviderFailing.md, and the rules that Prometheus has loaded"
    if alert.fired is None:
        return Fact(name, "it never fired", expected, holds=False, next_step=step)
    found = f"fired {alert.fired - cut.since:.0f} s after the cut"
    if alert.over is None:
        return Fact(name, f"{found}, still fires", expected, holds=False, next_step=step)
    found = f"{found}, over {alert.over - cut.until:.0f} s after the provider's return"
    return Fact(name, found, expected, cut.since <= alert.fired <= cut.until, step)


def _told(evidence: Evidence) -> Fact:
    name, told = "Alertmanager told Slack once that it fires, once that it is over", evidence.told
    expected = "one and one"
    if told.why is not None:
        found = f"not looked at: {told.why}"
        return Fact(name, found, expected, holds=False, next_step=told.next_step)
    failed = f", {told.failed} not taken" if told.failed else ""
    return Fact(
        name,
        f"{told.firing} and {told.resolved}{failed}{told.where}",
        expected,
        (told.firing, told.resolved, told.failed) == (1, 1, 0),
        "the routes of alertmanager.yml: `severity` ticket leads to Slack, with send_resolved",
    )


def _boards(evidence: Evidence) -> Fact:
    name = "the dashboards showed the cut, and that it is over"
    expected = "each above 0 in the cut, 0 after it"
    if evidence.seen_why is not None:
        found = f"not looked at: {evidence.seen_why}"
        return Fact(name, found, expected, holds=False, next_step=evidence.alert.next_step)
    wrong = [each for each in evidence.seen if not each.most or each.after]
    shown = "; ".join(
        f"{each.panel}: {_figure(each.most)}, {_figure(each.after)}" for each in wrong
    )
    return Fact(
        name,
        f"{len(evidence.seen) - len(wrong)} of {len(evidence.seen)} queries"
        + (f" ({shown})" if wrong else ""),
        expected,
        bool(evidence.seen) and not wrong,
        "ask Prometheus the panel's query: is filaviva_job_attempts_total of every worker there?",
    )


def _figure(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.3g}"


def _recovered(evidence: Evidence) -> Fact:
    longest = max((each.planned for each in pauses(evidence.attempts)), default=0.0)
    bound = longest + TOLERANCE_SECONDS
    found = "something still waits" if evidence.recovered is None else f"{evidence.recovered:.1f} s"
    return Fact(
        "time to recover, from the provider's return until nothing waits",
        found,
        f"at most {bound:.1f} s: the longest pause and {TOLERANCE_SECONDS:g} s",
        evidence.recovered is not None and evidence.recovered <= bound,
        "are there free slots? docs/runbooks/FilavivaQueueOld.md",
    )


def _nothing_left(evidence: Evidence) -> Fact:
    return Fact(
        "nothing of the drill is left to do",
        f"{evidence.unsettled} jobs and dead letters are open",
        "0",
        evidence.unsettled == 0,
        f"{_LIST}; filaviva dlq groups --state open",
    )
