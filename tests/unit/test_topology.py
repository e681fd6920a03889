"""What has to be on the broker, and where a pause leads."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filaviva.broker import cascade
from filaviva.broker.definitions import export
from filaviva.broker.topology import Declarations, Queue, Topology

TOPOLOGY = Topology()


def matches(binding: str, key: str) -> bool:
    """Topic matching for bindings of stars, words and one `#` at the end."""
    pattern, words = binding.split("."), key.split(".")
    if pattern[-1] == "#":
        pattern, words = pattern[:-1], words[: len(pattern) - 1]
    return len(pattern) == len(words) and all(
        want in ("*", word) for want, word in zip(pattern, words, strict=True)
    )


def walk(declarations: Declarations, exchange: str, key: str) -> int:
    """Follow a message through the cascade; return how long its queues hold it, in ms."""
    waited, queues = 0, {queue.name: queue for queue in declarations.queues}
    while exchange != TOPOLOGY.delivery:
        here = [b for b in declarations.bindings if b.source == exchange]
        [taken] = [b for b in here if matches(b.routing_key, key)]
        if taken.destination_type == "queue":
            arguments = queues[taken.destination].arguments
            waited += arguments["x-message-ttl"]
            exchange = arguments["x-dead-letter-exchange"]
        else:
            exchange = taken.destination
    return waited


@given(pause=st.floats(min_value=0.000001, max_value=26_843_545.5))
def test_the_cascade_holds_a_message_for_its_pause_rounded_up_to_the_tick(pause: float) -> None:
    declarations = TOPOLOGY.declarations(["llm"])

    exchange, key = TOPOLOGY.delay_route(pause, "llm")

    waited = walk(declarations, exchange, key) / 1000
    assert pause - 1e-6 <= waited <= pause + 0.1 + 1e-6


@pytest.mark.parametrize(
    ("pause", "ticks"),
    [(0.1, 1), (0.3, 3), (0.7, 7), (1.1, 11), (0.01, 1), (2, 20), (0.25, 3), (0, 0), (-5, 0)],
)
def test_a_pause_is_rounded_up_to_whole_ticks(pause: float, ticks: int) -> None:
    assert cascade.ticks(pause) == ticks


def test_a_pause_beyond_the_horizon_becomes_the_horizon() -> None:
    exchange, key = TOPOLOGY.delay_route(1e12, "llm")

    assert exchange == "filaviva.delay.l27"
    assert key == ".".join(["1"] * 28) + ".llm"


def test_no_pause_goes_straight_to_the_jobs_exchange() -> None:
    assert TOPOLOGY.delay_route(0, "llm") == ("filaviva.jobs", "llm")


def test_a_pause_enters_at_its_highest_bit_and_names_its_queue_last() -> None:
    exchange, key = TOPOLOGY.delay_route(1.3, "llm")

    assert exchange == "filaviva.delay.l03"
    assert key == "0." * 24 + "1.1.0.1.llm"
    assert len(f"{'0.' * 28}{'q' * 40}") <= 255


def test_only_events_and_the_delivery_exchange_have_an_alternate() -> None:
    declarations = TOPOLOGY.declarations(["llm"])

    alternates = {
        exchange.name: exchange.arguments["alternate-exchange"]
        for exchange in declarations.exchanges
        if exchange.arguments
    }

    assert alternates == {
        "filaviva.events": "filaviva.unroutable",
        "filaviva.delay.deliver": "filaviva.unroutable",
    }


def test_every_queue_that_dead_letters_does_so_at_least_once() -> None:
    forwarding = [
        queue
        for queue in TOPOLOGY.declarations(["llm"]).queues
        if "x-dead-letter-exchange" in queue.arguments
    ]

    assert len(forwarding) == cascade.LEVELS + 1
    for queue in forwarding:
        assert queue.arguments["x-queue-type"] == "quorum"
        assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"
        assert queue.arguments["x-overflow"] == "reject-publish"


def test_a_queue_without_a_dead_letter_exchange_has_no_delivery_limit() -> None:
    ends = [
        queue
        for queue in TOPOLOGY.declarations(["llm"]).queues
        if "x-dead-letter-exchange" not in queue.arguments
    ]

    assert {queue.name for queue in ends} == {
        "filaviva.retry.requests",
        "filaviva.dead.letters",
        "filaviva.unroutable",
    }
    assert all(queue.arguments["x-delivery-limit"] == 1_000_000_000 for queue in ends)


def test_a_work_queue_has_an_explicit_limit_and_dead_letters_to_the_dead_exchange() -> None:
    [work] = [q for q in TOPOLOGY.declarations(["llm"]).queues if q.name == "filaviva.work.llm"]

    assert work == Queue(
        "filaviva.work.llm",
        {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "filaviva.dead",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-delivery-limit": 20,
        },
    )


def test_the_definitions_name_everything_once_and_for_one_vhost() -> None:
    declarations = TOPOLOGY.declarations(["llm", "mail"])

    definitions = json.loads(json.dumps(export(declarations, "shop")))

    assert len(definitions["queues"]) == len(declarations.queues) == cascade.LEVELS + 5
    assert len(definitions["bindings"]) == len(declarations.bindings)
    for kind in ("exchanges", "queues", "bindings"):
        assert {entry["vhost"] for entry in definitions[kind]} == {"shop"}
