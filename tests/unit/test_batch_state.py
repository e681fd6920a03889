"""What a batch comes to follows from its items' states alone."""

from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import simplejson

from filaviva.operations import batch_state
from filaviva.operations.batch_state import Batch, state_of


def batch(letters: str, **changes: Any) -> Batch:
    made = Batch(
        id=UUID(int=1),
        state="running",
        canceling=False,
        cost_usd=Decimal(0),
        total=len(letters),
        accept_partial=None,
        fail_fast=False,
        max_failures=None,
        concurrency=None,
        forgiven=0,
        told="q" * len(letters),
        letters=letters,
        items_cost_usd=Decimal(0),
    )
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("letters", "policy", "state"),
    [
        ("ssss", {}, "succeeded"),
        ("sssf", {}, "succeeded"),
        ("sssf", {"accept_partial": False}, "failed"),
        ("sssc", {"accept_partial": False}, "failed"),
        ("ssss", {"accept_partial": False}, "succeeded"),
        ("ffff", {}, "failed"),
        ("fffc", {}, "failed"),
        ("cccc", {}, "canceled"),
        ("sscc", {}, "succeeded"),
        ("ssrf", {}, "running"),
        ("ssqf", {}, "running"),
        ("sfcc", {"fail_fast": True}, "failed"),
        ("sfcc", {"fail_fast": True, "accept_partial": True}, "succeeded"),
        ("ssff", {"max_failures": 2}, "succeeded"),
        ("sfff", {"max_failures": 2}, "failed"),
        ("qqqq", {"state": "queued"}, "queued"),
        ("qqww", {"state": "queued"}, "queued"),
        ("qqqq", {"state": "failed"}, "running"),
        ("qrqq", {"state": "queued"}, "running"),
        ("ssrx", {"state": "cancel_requested", "canceling": True}, "cancel_requested"),
        ("sscc", {"state": "cancel_requested", "canceling": True}, "canceled"),
        ("sscf", {"state": "cancel_requested", "canceling": True}, "canceled"),
        ("ssss", {"state": "cancel_requested", "canceling": True}, "succeeded"),
        ("qxcc", {"state": "queued", "canceling": True}, "cancel_requested"),
        ("sscc", {"state": "queued", "canceling": True}, "canceled"),
        ("sscq", {"state": "canceled", "canceling": True}, "running"),
        ("sssc", {"state": "canceled", "canceling": True}, "succeeded"),
        ("sssc", {"state": "canceled", "canceling": True, "told": "sssc"}, "canceled"),
    ],
)
def test_the_state_of_a_batch(letters: str, policy: dict[str, Any], state: str) -> None:
    assert state_of(batch(letters, **policy)) == state


@pytest.mark.parametrize(
    ("letters", "policy", "stopped"),
    [
        ("fqqq", {"fail_fast": True}, True),
        ("fqqq", {}, False),
        ("ffqq", {"max_failures": 2}, False),
        ("fffq", {"max_failures": 2}, True),
        ("fffq", {"max_failures": 2, "forgiven": 1}, False),
        ("fxxc", {"fail_fast": True}, False),
        ("fsss", {"fail_fast": True}, False),
        ("scqc", {"state": "cancel_requested", "canceling": True}, True),
        ("scxc", {"state": "cancel_requested", "canceling": True}, False),
    ],
)
def test_too_many_failures_and_a_cancel_stop_what_is_still_to_be_done(
    letters: str, policy: dict[str, Any], *, stopped: bool
) -> None:
    assert (batch(letters, **policy).stops_because is not None) is stopped


@pytest.mark.parametrize(
    ("letters", "policy", "room"),
    [
        ("qrwww", {"concurrency": 2}, 0),
        ("srwww", {"concurrency": 2}, 1),
        ("sswww", {"concurrency": 2}, 2),
        ("sssxw", {"concurrency": 2}, 1),
        ("ssssw", {"concurrency": 2}, 1),
        ("fswww", {"concurrency": 2, "fail_fast": True}, 0),
        ("sswww", {"concurrency": 2, "canceling": True}, 0),
        ("sqqqq", {}, 0),
    ],
)
def test_waiting_items_go_as_far_as_there_is_room(
    letters: str, policy: dict[str, Any], room: int
) -> None:
    assert batch(letters, **policy).room == room


def test_progress_counts_every_item_once() -> None:
    progress = simplejson.loads(batch_state.progress("sssssssfrx" + "qwc"))

    assert progress == {
        "total": 13,
        "succeeded": 7,
        "failed": 1,
        "canceled": 1,
        "running": 2,
        "queued": 2,
        "message": "7 of 13 completed",
    }


def test_only_what_a_reader_would_see_is_told() -> None:
    assert list(batch_state.changes("qwqr", "qqrs")) == [(2, "running"), (3, "succeeded")]
