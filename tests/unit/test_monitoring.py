"""What the rules and dashboards ask for exists, and what they say helps."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from filaviva.cli.reference.metrics import names
from filaviva.monitoring.boards import BOARDS, FOLDER, PAGES
from filaviva.monitoring.grafana import document
from filaviva.monitoring.panels import Board, Panel, Query, Sql

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


def test_every_alert_has_a_runbook_and_a_sentence() -> None:
    for name, rule in alerts().items():
        notes = rule["annotations"]
        assert notes["summary"], name
        assert notes["runbook_url"] == f"{{{{ $externalLabels.runbooks }}}}/{name}.md"
        assert (ROOT / "docs/runbooks" / f"{name}.md").read_text().startswith(f"# {name}\n")
        assert rule["labels"]["severity"] in ("page", "ticket", "info", "none"), name


def tried() -> Iterator[tuple[str, str, bool]]:
    """What is expected of each alert somewhere: its name, its burn rate, whether it fires."""
    for path in TRIED:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for each in test.get("promql_expr_test", ()):
                for name, rest in re.findall(r'alertname="(\w+)"(.*?)}', each["expr"]):
                    burn = re.search(r'burn="([\d.]+)"', rest)
                    yield name, burn[1] if burn else "", bool(each["exp_samples"])


def test_every_alert_is_seen_to_fire_and_to_be_quiet() -> None:
    said = {(rule["alert"], rule["labels"].get("burn", "")) for rule in rules() if "alert" in rule}
    said -= {("FilavivaWatchdog", "")}  # it always fires

    expected = {(*one, fires) for one in said for fires in (True, False)}
    assert expected - set(tried()) == set()


def test_every_runbook_of_an_alert_belongs_to_one() -> None:
    pages = {path.stem for path in (ROOT / "docs/runbooks").glob("Filaviva*.md")}

    assert pages == set(alerts())


def test_every_metric_in_a_rule_exists() -> None:
    used = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    recorded = {rule["record"].split(":")[1] for rule in rules() if "record" in rule}

    assert used - recorded - exposed() == set()


def queries() -> list[str]:
    """Every question that a panel asks of Prometheus."""
    panels = [panel for board in BOARDS for panel in board.panels]
    return [ask.expr for panel in panels for ask in panel.ask if isinstance(ask, Query)]


def test_every_metric_in_a_panel_exists() -> None:
    used = {name for expr in queries() for name in METRIC.findall(expr)}

    assert used - exposed() == set()


def test_every_metric_of_the_code_is_in_a_panel_or_a_rule() -> None:
    asked = {
        name
        for expr in [*queries(), *(r["expr"] for r in rules())]
        for name in METRIC.findall(expr)
    }

    unasked = [
        name
        for name, kind, _ in names()
        if not {name + suffix for suffix in SUFFIXES.get(kind, ("",))} & asked
    ]

    assert unasked == []


def test_no_dashboard_is_left_over() -> None:
    found = {str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).glob("*.json")}

    assert found == set(PAGES)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_dashboard_is_what_grafana_expects(board: Board) -> None:
    made = json.loads((ROOT / FOLDER / f"{board.uid}.json").read_text())
    text = json.dumps(made["panels"])

    assert made == document(board)
    assert len(made["uid"]) <= 40
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
    known = {variable["name"] for variable in made["templating"]["list"]}
    built_in = {"__rate_interval", "__range", "__timeFilter", "__timeFrom"}
    assert set(re.findall(r"\$\{?(\w+)", text)) <= known | built_in
    assert _overlapping(made["panels"]) == []


@pytest.mark.parametrize("board", [board for board in BOARDS if board.by_type], ids=lambda b: b.uid)
def test_tables_show_the_types_that_are_chosen_only(board: Board) -> None:
    asked = [ask.text for panel in board.panels for ask in panel.ask if isinstance(ask, Sql)]

    assert asked
    assert [text for text in asked if "~ '^(${type:regex})$'" not in text] == []


def _overlapping(panels: list[dict[str, Any]]) -> list[str]:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if taken.setdefault((x, y), panel["title"]) != panel["title"] or x >= 24:
                    return [panel["title"], taken[x, y]]
    return []


@pytest.mark.parametrize(
    "panel",
    [pytest.param(panel, id=f"{b.uid}-{panel.title}") for b in BOARDS for panel in b.panels],
)
def test_a_panel_says_what_it_shows_from_when_on_it_is_bad_and_what_to_do(panel: Panel) -> None:
    assert panel.unit
    assert panel.text.endswith(".")
    assert panel.steps[0][0] is None
    assert (ROOT / "docs/runbooks" / f"{panel.see}.md").exists()
    assert panel.ask
