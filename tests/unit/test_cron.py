"""When schedules fire: clock changes, missed times, and words that are no cron expression."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filaviva.cron import MOST_MISSED, Cron, Missed, turn

BERLIN, SAO_PAULO = "Europe/Berlin", "America/Sao_Paulo"
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def times(text: str, zone: str, after: str, count: int = 3) -> list[str]:
    """The next times on the wall clocks of the zone."""
    cron = Cron.read(text, zone)
    found = islice(cron.after(datetime.fromisoformat(after)), count)
    return [at.astimezone(cron.zone).strftime("%d %H:%M %z") for at in found]


def test_times_are_those_of_the_zone() -> None:
    assert times("30 8 * * MON-FRI", SAO_PAULO, "2026-11-27T23:00:00+00:00") == [
        "30 08:30 -0300",
        "01 08:30 -0300",
        "02 08:30 -0300",
    ]


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        # 02:00-03:00 is left out on 29 March 2026
        ("30 2 * * *", BERLIN, "2026-03-28T12:00:00Z", ["29 03:00 +0200", "30 02:30 +0200"]),
        ("0,30 2 * * *", BERLIN, "2026-03-28T12:00:00Z", ["29 03:00 +0200", "30 02:00 +0200"]),
        ("*/30 2 * * *", BERLIN, "2026-03-28T12:00:00Z", ["30 02:00 +0200", "30 02:30 +0200"]),
        # midnight is left out on 4 November 2018
        ("0 0 * * *", SAO_PAULO, "2018-11-03T12:00:00Z", ["04 01:00 -0200", "05 00:00 -0200"]),
        ("15 * 4 11 *", SAO_PAULO, "2018-11-03T12:00:00Z", ["04 01:15 -0200", "04 02:15 -0200"]),
    ],
)
def test_a_time_in_the_gap_comes_right_after_it_once(
    text: str, zone: str, after: str, expected: list[str]
) -> None:
    assert times(text, zone, after, 2) == expected


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        # 02:00-03:00 comes twice on 25 October 2026
        ("30 2 * * *", BERLIN, "2026-10-24T12:00:00Z", ["25 02:30 +0200", "26 02:30 +0100"]),
        # between the two: the first has been
        ("30 2 * * *", BERLIN, "2026-10-25T01:10:00Z", ["26 02:30 +0100", "27 02:30 +0100"]),
        # what repeats goes by elapsed time
        ("30 * * * *", BERLIN, "2026-10-25T00:00:00Z", ["25 02:30 +0200", "25 02:30 +0100"]),
        # 23:00-24:00 comes twice on 17 February 2018
        ("30 23 * * *", SAO_PAULO, "2018-02-17T12:00:00Z", ["17 23:30 -0200", "18 23:30 -0300"]),
        ("30 23 * * *", SAO_PAULO, "2018-02-18T02:10:00Z", ["18 23:30 -0300", "19 23:30 -0300"]),
    ],
)
def test_a_time_that_comes_twice_fires_the_first_time(
    text: str, zone: str, after: str, expected: list[str]
) -> None:
    assert times(text, zone, after, 2) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("75 * * * *", ["minute '75'", "minute 0-59"]),
        ("* * * *", ["4 fields", "five fields"]),
        ("0 0 12 * * *", ["6 fields", "five fields"]),
        ("@daily", ["1 fields", "five fields"]),
        ("0 0 30 2 *", ["day-of-month '30'"]),
        ("* * * * MONDAY", ["day-of-week 'MONDAY'", "SUN-SAT"]),
        ("\N{ARABIC-INDIC DIGIT ONE} * * * *", ["five fields"]),
        ("*" * 5000, ["5000 characters"]),
    ],
)
def test_what_is_no_cron_is_refused_with_what_was_found_and_expected(
    text: str, words: list[str]
) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        Cron.read(text, "UTC")

    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "America", "UTC+3"])
def test_a_zone_that_is_none_is_refused_with_an_example(zone: str) -> None:
    with pytest.raises(ValueError, match="America/Sao_Paulo"):
        Cron.read("* * * * *", zone)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789*,-/#LW SUNMOD", max_size=24))
def test_no_text_is_more_than_refused(text: str) -> None:
    try:
        cron = Cron.read(text, SAO_PAULO)
    except ValueError:
        return
    first, second = islice(cron.after(NOON), 2)
    assert NOON < first < second


@pytest.mark.parametrize(
    ("missed", "fired", "left_out"), [("skip", 0, 4), ("once", 1, 3), ("all", 4, 0)]
)
def test_an_hour_away_is_made_up_for_as_the_policy_says(
    missed: Missed, fired: int, left_out: int
) -> None:
    cron = Cron.read("*/15 * * * *", "UTC")
    now = NOON + timedelta(minutes=5)

    found = turn(cron, since=NOON - timedelta(minutes=45), now=now, missed=missed)

    assert (len(found.times), found.left_out) == (fired, left_out)
    assert found.times[-1:] == (NOON,) * (fired > 0)
    assert found.following == NOON + timedelta(minutes=15)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_few_seconds_late_is_not_missed(missed: Missed) -> None:
    cron = Cron.read("0 12 * * *", "UTC")

    found = turn(cron, since=NOON, now=NOON + timedelta(seconds=20), missed=missed)

    assert (found.times, found.left_out) == ((NOON,), 0)


def test_after_months_away_only_the_latest_times_are_made_up_for() -> None:
    cron = Cron.read("* * * * *", BERLIN)

    found = turn(cron, since=NOON - timedelta(days=300), now=NOON, missed="all")

    assert len(found.times) == MOST_MISSED
    assert found.times[-1] == NOON
    assert found.times[0] == NOON - timedelta(minutes=MOST_MISSED - 1)
    assert found.left_out > 0


def test_the_latest_of_many_are_what_counting_from_the_first_gives() -> None:
    # The window spans both ways round a clock change, where going backwards has other times.
    cron = Cron.read("0,20,40 0-6 * * *", BERLIN)
    since, now = datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC)
    counted = [at for at in islice(cron.after(since), 2000) if at <= now]

    assert cron.since(since, now)[-MOST_MISSED:] == counted[-MOST_MISSED:]
