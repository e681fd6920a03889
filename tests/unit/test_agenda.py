"""What becomes of a schedule's times, by its overlap policy and its limits."""

from datetime import UTC, datetime, timedelta

import pytest

from filaviva.cron import MOST_MISSED, Overlap
from filaviva_retry_scheduler.agenda import Plan, look_again, plan

NINE = datetime(2030, 1, 1, 9, tzinfo=UTC)
TEN, ELEVEN = NINE + timedelta(hours=1), NINE + timedelta(hours=2)


@pytest.mark.parametrize(
    ("overlap", "busy", "expected"),
    [
        ("allow", True, Plan(fire=(NINE, TEN))),
        ("skip", True, Plan(skip=(NINE, TEN))),
        ("skip", False, Plan(fire=(NINE,), skip=(TEN,))),
        ("queue", True, Plan(wait=(NINE, TEN))),
        ("queue", False, Plan(fire=(NINE,), wait=(TEN,))),
    ],
)
def test_times_are_fired_skipped_or_wait(*, overlap: Overlap, busy: bool, expected: Plan) -> None:
    assert plan([TEN], waiting=[NINE], overlap=overlap, busy=busy) == expected


def test_what_a_limit_refuses_waits_before_what_comes_later() -> None:
    made = Plan(fire=(NINE, TEN), wait=(ELEVEN,)).without({TEN})

    assert made == Plan(fire=(NINE,), wait=(TEN, ELEVEN))


def test_no_more_than_a_hundred_wait() -> None:
    times = [NINE + timedelta(minutes=n) for n in range(MOST_MISSED + 5)]

    made = plan(times, waiting=[], overlap="queue", busy=True)

    assert (len(made.wait), made.wait[0], made.left_out) == (MOST_MISSED, NINE, 5)


def test_the_longer_they_wait_the_more_rarely_somebody_looks() -> None:
    soon = look_again([NINE], now=NINE + timedelta(seconds=3))
    later = look_again([NINE], now=TEN)
    told = look_again([NINE], now=NINE, pause=7)

    assert soon - NINE == timedelta(seconds=4)
    assert later - TEN == timedelta(seconds=30)
    assert told - NINE == timedelta(seconds=7)
