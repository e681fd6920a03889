"""What becomes of a job after an attempt that did not succeed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from filaviva_retry_scheduler.verdict import (
    LOST_LIMIT,
    Cancel,
    Case,
    Fail,
    Requeue,
    failures_after,
    judge,
    losses_after,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
RETRY = Case(
    job_id=UUID(int=1),
    type="invoice.extract",
    version=1,
    queue="llm",
    priority=4,
    state="running",
    epoch=1,
    attempt=1,
    failures=0,
    losses=0,
    max_attempts=5,
    deadline=None,
    correlation_id="c",
    traceparent=None,
    created_at=NOW,
    outcome="retry",
    ended_at=NOW,
    error_class="upstream",
    error_code="ServerError",
    error_message="it broke",
    retry_after=None,
    base=2,
    cap=300,
    jitter=0,
    now=NOW,
)
LOST = replace(RETRY, outcome=None, ended_at=None, error_class=None)


def test_a_retryable_failure_is_repeated_after_its_pause() -> None:
    assert judge(RETRY) == Requeue(2, NOW + timedelta(seconds=2))


def test_the_pause_begins_with_the_end_of_the_attempt() -> None:
    ended = NOW - timedelta(seconds=1.5)

    assert judge(replace(RETRY, ended_at=ended)) == Requeue(2, NOW + timedelta(seconds=0.5))


def test_a_pause_that_is_over_means_now_and_not_the_past() -> None:
    ended = NOW - timedelta(hours=1)

    assert judge(replace(RETRY, ended_at=ended)) == Requeue(2, NOW)


def test_a_clock_that_went_back_lengthens_no_pause() -> None:
    ended = NOW + timedelta(hours=1)

    assert judge(replace(RETRY, ended_at=ended)) == Requeue(2, NOW + timedelta(seconds=2))


def test_one_attempt_allowed_means_no_repetition() -> None:
    assert judge(replace(RETRY, max_attempts=1)) == Fail("attempts_exhausted")


def test_what_is_terminal_is_not_repeated_whatever_is_left() -> None:
    assert judge(replace(RETRY, outcome="failed")) == Fail("terminal")


def test_a_result_that_is_too_large_says_so() -> None:
    case = replace(RETRY, outcome="failed", error_code="ResultTooLarge")

    assert judge(case) == Fail("result_too_large")


def test_a_lost_attempt_does_not_use_up_the_allowance() -> None:
    case = replace(LOST, failures=4)

    assert isinstance(judge(case), Requeue)
    assert (failures_after(case), losses_after(case)) == (4, 1)


def test_a_job_that_keeps_losing_its_workers_ends() -> None:
    assert isinstance(judge(replace(LOST, losses=LOST_LIMIT - 2)), Requeue)
    assert judge(replace(LOST, losses=LOST_LIMIT - 1)) == Fail("attempts_exhausted")


def test_an_attempt_that_our_database_cost_counts_as_lost() -> None:
    case = replace(RETRY, error_class="lost", failures=4, losses=1)

    assert isinstance(judge(case), Requeue)
    assert (failures_after(case), losses_after(case)) == (4, 2)
    assert judge(replace(case, losses=LOST_LIMIT - 1)) == Fail("attempts_exhausted")


def test_losses_do_not_end_a_job_that_fails_politely() -> None:
    assert isinstance(judge(replace(RETRY, losses=LOST_LIMIT - 1)), Requeue)


def test_a_cancel_is_stronger_than_everything() -> None:
    for case in (RETRY, LOST, replace(RETRY, outcome="failed")):
        assert judge(replace(case, state="cancel_requested")) == Cancel()


@given(
    failures=st.integers(0, 100),
    max_attempts=st.integers(1, 100),
    seconds_left=st.none() | st.floats(-1e5, 1e5),
    retry_after=st.none() | st.floats(0, 1e12),
)
def test_nothing_is_repeated_beyond_its_allowance_or_its_deadline_or_too_early(
    failures: int, max_attempts: int, seconds_left: float | None, retry_after: float | None
) -> None:
    deadline = None if seconds_left is None else NOW + timedelta(seconds=seconds_left)
    case = replace(
        RETRY,
        failures=failures,
        max_attempts=max_attempts,
        deadline=deadline,
        retry_after=retry_after,
    )

    verdict = judge(case)

    if isinstance(verdict, Requeue):
        assert failures + 1 < max_attempts
        assert deadline is None or verdict.not_before < deadline
        assert verdict.not_before >= NOW + timedelta(seconds=min(retry_after or 0, 3e8))
    else:
        assert failures + 1 >= max_attempts or deadline is not None
