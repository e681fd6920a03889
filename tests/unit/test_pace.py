"""A queue is kept short and never dry, whatever the pace of the work."""

from collections.abc import Callable
from itertools import pairwise

from filaviva.pace import FEWEST, MOST, Pace


def simulated(per_second: float, *, every: float = 0.1, seconds: float = 10.0) -> tuple[int, int]:
    """Work at a constant pace for a while; give what was done at most, and what lay there last."""
    pace, there, owed, done, now = Pace(), 0, 0.0, 0, 0.0
    while now < seconds:
        room = pace.seen(there, now)
        pace.sent(room)
        there += room
        owed += per_second * every
        worked = min(there, int(owed))
        owed = min(owed - worked, max(1.0, per_second * every))
        there, done, now = there - worked, done + worked, now + every
    return done, there


def within(low: float, high: float) -> Callable[[float], bool]:
    return lambda found: low <= found <= high


def test_fast_work_never_runs_dry_and_holds_about_half_a_second_of_itself() -> None:
    done, there = simulated(2000)

    assert done > 0.85 * 2000 * 10
    assert within(100, 2000)(there)


def test_slow_work_holds_only_a_few() -> None:
    done, there = simulated(1)

    assert done >= 8
    assert there <= 2 * FEWEST


def test_nothing_is_sent_while_nothing_is_taken() -> None:
    pace = Pace()
    pace.sent(pace.seen(0, 0.0))

    assert [pace.seen(FEWEST, 0.1 * n) for n in range(1, 50)] == [0] * 49


def test_a_queue_that_is_emptied_at_each_look_gets_twice_as_much_at_the_next() -> None:
    pace, rooms = Pace(), []
    for n in range(14):
        rooms.append(pace.seen(0, float(n)))
        pace.sent(rooms[-1])

    assert rooms[0] == FEWEST
    assert all(later >= min(MOST, 2 * earlier) for earlier, later in pairwise(rooms))
    assert rooms[-1] == MOST


def test_what_others_send_to_the_queue_counts_as_there() -> None:
    pace = Pace()
    pace.seen(0, 0.0)

    assert pace.seen(10_000, 0.1) == 0
