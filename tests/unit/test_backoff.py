"""The pause before the next attempt."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filaviva.backoff import LONGEST, pause

POLICY = {"base": 2.0, "cap": 300.0, "jitter": 1.0}


def lowest(low: float, _high: float) -> float:
    return low


def highest(_low: float, high: float) -> float:
    return high


@pytest.mark.parametrize(
    ("n", "seconds"), [(1, 2), (2, 4), (3, 8), (8, 256), (9, 300), (10, 300), (10**9, 300)]
)
def test_the_pause_doubles_up_to_its_cap(n: int, seconds: float) -> None:
    assert pause(n, **POLICY, uniform=lowest) == seconds


def test_the_jitter_is_added_to_the_capped_pause() -> None:
    assert pause(20, **POLICY, uniform=highest) == 301


def test_a_pause_is_never_shorter_than_the_other_side_asked() -> None:
    assert pause(1, **POLICY, retry_after=42.5, uniform=highest) == 42.5


def test_a_short_wish_of_the_other_side_changes_nothing() -> None:
    assert pause(3, **POLICY, retry_after=0.5, uniform=lowest) == 8


@pytest.mark.parametrize("wish", [-5.0, math.nan])
def test_a_wish_without_sense_is_not_heard(wish: float) -> None:
    assert pause(1, **POLICY, retry_after=wish, uniform=lowest) == 2


def test_an_endless_wish_becomes_the_longest_pause() -> None:
    assert pause(1, **POLICY, retry_after=math.inf) == LONGEST


def test_no_base_and_no_jitter_means_at_once() -> None:
    assert pause(7, base=0, cap=0, jitter=0) == 0


@given(
    n=st.integers(1, 10_000),
    base=st.floats(0, 1e6),
    cap=st.floats(0, 1e6),
    jitter=st.floats(0, 1e6),
    retry_after=st.none() | st.floats(0, 1e6),
)
def test_every_pause_lies_between_its_bounds(
    n: int, base: float, cap: float, jitter: float, retry_after: float | None
) -> None:
    found = pause(n, base=base, cap=cap, jitter=jitter, retry_after=retry_after)

    drawn = float(min(Fraction(base) * 2 ** (n - 1), Fraction(cap)))
    least = max(drawn, retry_after or 0)
    most = max(drawn + jitter, retry_after or 0)
    assert least <= found <= most
