"""A drill of seconds asks the same questions, over windows of seconds."""

import yaml

from filaviva.monitoring import deployed
from filaviva.monitoring.shortened import shortened


def test_windows_and_waits_shrink_and_thresholds_do_not() -> None:
    rule = (
        "      - expr: rate(x[2m]) / rate(x[2m]) > 0.5 and increase(x[10s]) > 5\n        for: 30s\n"
    )

    short = shortened(rule, 0.05)

    assert short == (
        "      - expr: rate(x[6000ms]) / rate(x[6000ms]) > 0.5 and increase(x[2000ms]) > 5\n"
        "        for: 1500ms\n"
    )


def test_the_deployed_rules_stay_the_same_but_for_their_times() -> None:
    for text in deployed.rules().values():
        long, short = yaml.safe_load(text), yaml.safe_load(shortened(text, 0.1))

        assert [len(g["rules"]) for g in long["groups"]] == [
            len(g["rules"]) for g in short["groups"]
        ]
