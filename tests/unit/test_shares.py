"""Turns are shared: the same for every tenant, within a tenant by priority, always something."""

from collections import Counter
from collections.abc import Mapping

from filaviva_retry_scheduler.shares import Shares

HIGH, NORMAL, LOW = 8, 4, 0
Line = tuple[str, int]


def served(
    shares: Shares, waiting: Mapping[Line, int], *, room: int, rounds: int = 1
) -> Counter[Line]:
    """Give turns as the database would choose them; lines are as long as told."""
    left, total = dict(waiting), Counter[Line]()
    for _ in range(rounds):
        offers = shares.offers(line for line, many in left.items() if many)
        passes = sorted(
            (offer.start + offer.stride * n, offer.tenant, offer.priority)
            for offer in offers
            for n in range(1, min(room, left[offer.tenant, offer.priority]) + 1)
        )
        counts = Counter((tenant, priority) for _, tenant, priority in passes[:room])
        shares.took(offers, counts)
        for line, many in counts.items():
            left[line] -= many
        total.update(counts)
    return total


def test_tenants_get_the_same_however_much_they_have() -> None:
    lines = {("large", NORMAL): 10_000, ("middle", NORMAL): 1_000, ("other", NORMAL): 1_000}

    assert set(served(Shares(), lines, room=300).values()) == {100}


def test_the_only_tenant_gets_everything() -> None:
    assert served(Shares(), {("a", LOW): 1000}, room=300) == {("a", LOW): 300}


def test_who_comes_later_is_served_in_the_next_round() -> None:
    shares = Shares()
    served(shares, {("large", NORMAL): 50_000}, room=1, rounds=500)

    late = served(shares, {("large", NORMAL): 50_000, ("small", NORMAL): 1}, room=2)

    assert late["small", NORMAL] == 1


def test_within_a_tenant_high_goes_before_normal_before_low_and_low_is_not_starved() -> None:
    lines = {("a", HIGH): 10_000, ("a", NORMAL): 10_000, ("a", LOW): 10_000}

    many = served(Shares(), lines, room=2100)
    one_by_one = served(Shares(), lines, room=1, rounds=2100)

    for found in (many, one_by_one):
        assert found["a", HIGH] > 1500
        assert 350 < found["a", NORMAL] < 450
        assert 95 < found["a", LOW] < 105


def test_a_tenant_gets_no_more_for_having_every_priority() -> None:
    lines = {("a", HIGH): 999, ("a", NORMAL): 999, ("a", LOW): 999, ("b", LOW): 999}

    found = served(Shares(), lines, room=400)

    assert 195 < found["b", LOW] < 205


def test_one_job_of_high_priority_passes_a_long_line_of_its_own_tenant() -> None:
    shares = Shares()
    served(shares, {("a", NORMAL): 50_000}, room=100, rounds=10)

    found = served(shares, {("a", NORMAL): 50_000, ("a", HIGH): 1}, room=2)

    assert found["a", HIGH] == 1
