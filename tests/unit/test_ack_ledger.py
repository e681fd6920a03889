"""Acks: as few as possible, never past an open delivery, never twice."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from filaviva.broker.ledger import Ack, AckLedger, Reject


def ledger_of(*tags: int) -> AckLedger:
    ledger = AckLedger()
    for tag in tags:
        ledger.delivered(tag)
    return ledger


def test_all_settled_is_one_multiple_ack() -> None:
    ledger = ledger_of(1, 2, 3)
    for tag in (2, 1, 3):
        ledger.settle(tag)

    assert ledger.take() == [Ack(3, multiple=True)]
    assert len(ledger) == 0


def test_a_multiple_ack_never_reaches_past_an_open_delivery() -> None:
    ledger = ledger_of(1, 2, 3, 4, 5)
    for tag in (1, 2, 4, 5):
        ledger.settle(tag)

    assert ledger.take() == [Ack(2, multiple=True), Ack(4, multiple=False), Ack(5, multiple=False)]
    assert len(ledger) == 1


def test_a_multiple_ack_never_ends_at_a_delivery_that_was_settled_before() -> None:
    ledger = ledger_of(1, 2, 3)
    ledger.settle(3)
    assert ledger.take() == [Ack(3, multiple=False)]

    ledger.settle(1)
    ledger.settle(2)

    assert ledger.take() == [Ack(2, multiple=True)]


def test_a_rejected_delivery_is_told_first_and_never_acked() -> None:
    ledger = ledger_of(1, 2, 3)
    ledger.settle(1)
    ledger.reject(2, requeue=True)
    ledger.settle(3)

    assert ledger.take() == [Reject(2, requeue=True), Ack(3, multiple=True)]


def test_settling_twice_counts_once() -> None:
    ledger = ledger_of(1)

    assert ledger.settle(1)
    assert not ledger.settle(1)
    assert not ledger.reject(1, requeue=False)
    ledger.take()
    assert not ledger.settle(1)
    assert not ledger.dirty


class BrokerAndLedger(RuleBasedStateMachine):
    """Any order of deliveries and settlements, against what a broker does with the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = AckLedger()
        self.tag = 0
        self.held: set[int] = set()  # by us, not settled
        self.unacked: set[int] = set()  # at the broker
        self.acked: set[int] = set()

    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        for _ in range(count):
            self.tag += 1
            self.ledger.delivered(self.tag)
            self.held.add(self.tag)
            self.unacked.add(self.tag)

    @rule(choice=st.randoms(use_true_random=False), count=st.integers(1, 4))
    def settle(self, choice: object, count: int) -> None:
        for _ in range(min(count, len(self.held))):
            tag = choice.choice(sorted(self.held))  # type: ignore[attr-defined]
            self.held.discard(tag)
            assert self.ledger.settle(tag)

    @rule(choice=st.randoms(use_true_random=False))
    def give_back(self, choice: object) -> None:
        if self.held:
            tag = choice.choice(sorted(self.held))  # type: ignore[attr-defined]
            self.held.discard(tag)
            assert self.ledger.reject(tag, requeue=True)

    @rule()
    def flush(self) -> None:
        for frame in self.ledger.take():
            assert frame.tag in self.unacked, "406: the broker closes the channel"
            covered = {frame.tag}
            if isinstance(frame, Ack) and frame.multiple:
                covered = {tag for tag in self.unacked if tag <= frame.tag}
            self.unacked -= covered
            self.acked |= covered
        assert self.unacked == self.held

    @invariant()
    def nothing_held_is_acked(self) -> None:
        assert not self.held & self.acked


TestBrokerAndLedger = BrokerAndLedger.TestCase
