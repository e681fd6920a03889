"""What a worker counts of contracts: old data made new, and what did not fit."""

import pytest

from filaviva.classification import classify
from filaviva.errors import InvalidInput, InvalidOutput, Terminal, UpcastFailed
from filaviva.outcome import Done
from filaviva.policy import Policy
from filaviva.telemetry.metrics import Metrics
from filaviva_worker.claim import Claimed
from filaviva_worker.facts import Facts, Settled


def job(version: int) -> Claimed:
    known = dict.fromkeys(Claimed.__dataclass_fields__)
    numbers = {"waited": 0.0, "age": 0.0, "paused": False, "spent": 0.0}
    return Claimed(**{**known, "type": "order.ship", "version": version, **numbers})  # type: ignore[arg-type]


def test_an_upcast_is_counted_with_where_it_led() -> None:
    metrics = Metrics()
    facts = Facts(metrics)

    facts.claimed(job(1), read_as=3)
    facts.claimed(job(3), read_as=3)

    labels = {"type": "order.ship", "from": "1", "to": "3"}
    value = metrics.registry.get_sample_value("filaviva_contract_upcasts_total", labels)
    assert value == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InvalidInput("no"), "invalid_input"),
        (UpcastFailed("no"), "upcast_failed"),
        (InvalidOutput("no"), "invalid_output"),
        (Terminal("no"), None),
        (None, None),
    ],
)
def test_what_does_not_fit_its_contract_is_counted_by_reason(
    error: Exception | None, reason: str | None
) -> None:
    metrics = Metrics()
    outcome = Done() if error is None else classify(error, Policy())

    Facts(metrics).settled([Settled(job(1), outcome, 0.1, counted=True)])

    (counter,) = metrics.contract_violations.collect()
    found = [sample.labels for sample in counter.samples if sample.name.endswith("_total")]
    expected = [{"type": "order.ship", "version": "1", "reason": reason}] if reason else []
    assert found == expected
