"""How long the sweeper has reached the database without a gap."""

from filaviva_retry_scheduler.presence import Presence
from fixtures.retrying import Clock


def reach(presence: Presence, clock: Clock, *, seconds: float, every: float = 1) -> None:
    for _ in range(int(seconds / every)):
        clock.now += every
        presence.reached()


def test_a_lease_and_a_heartbeat_must_pass_first() -> None:
    clock = Clock()
    presence = Presence(lease_seconds=15, clock=clock)

    reach(presence, clock, seconds=20)
    assert not presence.steady

    reach(presence, clock, seconds=1)
    assert presence.steady


def test_an_outage_starts_it_again() -> None:
    clock = Clock()
    presence = Presence(lease_seconds=15, clock=clock)
    reach(presence, clock, seconds=30)

    presence.missed()
    reach(presence, clock, seconds=20)

    assert not presence.steady


def test_a_frozen_process_has_a_gap_though_nothing_failed() -> None:
    clock = Clock()
    presence = Presence(lease_seconds=15, clock=clock)
    reach(presence, clock, seconds=30)

    clock.now += 60
    presence.reached()

    assert not presence.steady
