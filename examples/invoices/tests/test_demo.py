"""The parts of the demonstration that need no stack."""

import httpx2
from filaviva.dev import slack

from invoices import documents
from invoices.demo.plan import CASES, CORRECTED, SUM_STORED, TEN, WRONG
from invoices.demo.watching import Watch, describe
from invoices.parsing import parse
from invoices.sandbox.faults import FaultPlan

QUEUED = {"status": "queued", "attempt": 0, "notBefore": None, "error": None, "costUsd": "0"}


class Lines:
    """A screen that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_the_plan_covers_the_ten_documents_and_the_one_that_is_no_invoice():
    assert {case.document for case in TEN} == {document.name for document in documents.TEN}
    assert WRONG.document == documents.NOT_AN_INVOICE.name
    assert documents.SPARE.name == CORRECTED


def test_the_planned_faults_exist():
    plan = FaultPlan()

    for case in CASES:
        plan.add(case.document, case.faults)


def test_the_expected_sum_is_that_of_the_documents():
    stored = (*documents.TEN, documents.SPARE)

    totals = [parse(each.read().decode("utf-8-sig")).totals.total for each in stored]

    assert sum(totals) == SUM_STORED


def test_the_stand_in_keeps_every_text_of_a_message():
    message = {
        "text": "short",
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": "long"}},
            {"type": "section", "fields": [{"type": "mrkdwn", "text": "field"}]},
        ],
    }

    with slack.stand_in() as inbox:
        answer = httpx2.post(inbox.url, json=message)

    assert (answer.status_code, answer.text) == (200, "ok")
    assert inbox.texts() == ["short\nlong\nfield"]


def test_only_what_is_new_is_shown():
    lines = Lines()
    watch = Watch(lines)

    watch.show({"a": QUEUED})
    watch.show({"a": QUEUED | {"status": "succeeded", "attempt": 1}})
    watch.show({"a": QUEUED | {"status": "succeeded", "attempt": 1}})

    assert lines.lines == ["a: succeeded in attempt 1, USD 0"]


def test_a_pause_says_what_failed():
    error = {"class": "rate_limited", "code": "RateLimitError"}

    line = describe(QUEUED | {"attempt": 1, "error": error, "notBefore": "2020-01-01T00:00:00Z"})

    assert line == "attempt 1 failed (rate_limited, RateLimitError); again in 0.0 s"
