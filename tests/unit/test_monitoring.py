"""What the rules and dashboards ask for exists, and what they say helps."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from filaviva.cli.reference.metrics import names

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
TRIED = sorted((ROOT / "deploy/prometheus/tests").glob("*.yml"))
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
METRIC = re.compile(r"\bfilaviva_\w+(?=[{\[)\s]|$)")


def rules() -> Iterator[dict[str, Any]]:
    """Every rule of every file."""
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def exposed() -> set[str]:
    """Every name that a query may use."""
    return {name + suffix for name, kind, _ in names() for suffix in SUFFIXES.get(kind, ("",))}


def test_every_alert_is_tried_and_has_a_runbook_and_a_sentence() -> None:
    tried = "\n".join(path.read_text() for path in TRIED)

    for name, rule in alerts().items():
        notes = rule["annotations"]
        assert name in tried, f"{name} has no test in deploy/prometheus/tests"
        assert notes["summary"], name
        assert notes["runbook_url"] == f"{{{{ $externalLabels.runbooks }}}}/{name}.md"
        assert (ROOT / "docs/runbooks" / f"{name}.md").read_text().startswith(f"# {name}\n")
        assert rule["labels"]["severity"] in ("page", "ticket", "info", "none"), name


def test_every_runbook_of_an_alert_belongs_to_one() -> None:
    pages = {path.stem for path in (ROOT / "docs/runbooks").glob("Filaviva*.md")}

    assert pages == set(alerts())


def test_every_metric_in_a_rule_exists() -> None:
    used = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    recorded = {rule["record"].split(":")[1] for rule in rules() if "record" in rule}

    assert used - recorded - exposed() == set()
