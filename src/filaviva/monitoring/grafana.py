"""Dashboards in Grafana's JSON, from version 11.6 on: provisioned files, changed in code only."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from filaviva.monitoring.panels import Board, Kind, Panel, Query, Row, Sql

SCHEMA: Final = 41
_PROMETHEUS: Final = {"type": "prometheus", "uid": "${prometheus}"}
_POSTGRES: Final = {"type": "grafana-postgresql-datasource", "uid": "${postgres}"}
_RUNBOOKS: Final = "https://github.com/YOUR-ORG/filaviva/blob/main/docs/runbooks"
_CONSOLE: Final = "http://127.0.0.1:8082"
_BROKER_BOARD: Final = "/d/Kn5xm-gZk"  # RabbitMQ-Overview, as the RabbitMQ team publishes it
_ACROSS: Final = 24
DEPLOYED: Final = (
    "count by (version, revision) (filaviva_build_info unless on (version, revision)"
    " (filaviva_build_info offset 10m))"
)
REPLAYED: Final = (
    "SELECT created_at AS time, coalesce(finished_at, now()) AS timeend,"
    " author || ': ' || reason AS text, 'replay' AS tags"
    " FROM filaviva.replays WHERE $__timeFilter(created_at)"
)


def page(board: Board) -> str:
    """Write a dashboard's file."""
    return json.dumps(document(board), indent=1, ensure_ascii=False) + "\n"


def document(board: Board) -> dict[str, Any]:
    """Make a dashboard."""
    return {
        "annotations": {"list": _annotations()},
        "description": board.text,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": _links(),
        "panels": list(_laid_out(board.rows)),
        "refresh": "30s",
        "schemaVersion": SCHEMA,
        "tags": list(board.tags),
        "templating": {"list": list(_variables(board))},
        "time": {"from": board.since, "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": f"Filaviva / {board.title}",
        "uid": board.uid,
        "version": 1,
    }


def _laid_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Lay the panels out from left to right, a new line where one does not fit."""
    number, top = 1, 0
    for row in rows:
        place = {"h": 1, "w": _ACROSS, "x": 0, "y": top}
        opened = {"collapsed": False, "gridPos": place, "panels": []}
        yield {"id": number, "type": "row", "title": row.title, **opened}
        number, top, left, tallest = number + 1, top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > _ACROSS:
                top, left, tallest = top + tallest, 0, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            yield _panel(panel, number, place)
            number, left, tallest = number + 1, left + panel.width, max(tallest, panel.height)
        top += tallest


def _panel(panel: Panel, number: int, place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _source(panel.ask[0]),
        "gridPos": place,
        "links": [
            _link("What to do", url=f"${{runbooks}}/{panel.see}.md"),
            _link("Console", url="${console}"),
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [_target(ask, n, panel.kind) for n, ask in enumerate(panel.ask)],
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps = [{"value": value, "color": color} for value, color in panel.steps]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
    }
    if panel.kind == "timeseries":
        defaults["min"] = 0
        defaults["custom"] = {
            "fillOpacity": 30 if panel.stacked else 8,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "dashed" if len(panel.steps) > 1 else "off"},
        }
    return defaults


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "timeseries":
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
        case "stat":
            last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
            return {"reduceOptions": last, "orientation": "auto"}
        case "heatmap":
            return {"calculate": False, "yAxis": {"unit": panel.unit}}
        case "table":
            return {"showHeader": True, "cellHeight": "sm"}


def _source(ask: Query | Sql) -> Mapping[str, str]:
    return _PROMETHEUS if isinstance(ask, Query) else _POSTGRES


def _target(ask: Query | Sql, number: int, kind: Kind) -> dict[str, Any]:
    name = chr(ord("A") + number)
    if isinstance(ask, Sql):
        return {
            "refId": name,
            "datasource": _POSTGRES,
            "editorMode": "code",
            "format": "table",
            "rawQuery": True,
            "rawSql": ask.text,
        }
    return {
        "refId": name,
        "datasource": _PROMETHEUS,
        "editorMode": "code",
        "expr": ask.expr,
        "legendFormat": ask.legend or "__auto",
        "instant": kind == "stat",
        "range": kind != "stat",
        "format": "heatmap" if kind == "heatmap" else "time_series",
        "exemplar": "_bucket" in ask.expr,
    }


def _variables(board: Board) -> Iterator[dict[str, Any]]:
    for name, kind in (("prometheus", "prometheus"), ("postgres", _POSTGRES["type"])):
        yield {"name": name, "type": "datasource", "query": kind, "label": name.capitalize()}
    if board.by_type:
        query = "label_values(filaviva_jobs, type)"
        yield {
            "name": "type",
            "type": "query",
            "label": "Job type",
            "datasource": _PROMETHEUS,
            "definition": query,
            "query": {"query": query, "refId": "types"},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }
    for name, value in (("runbooks", _RUNBOOKS), ("console", _CONSOLE)):
        current = {"text": value, "value": value}
        yield {"name": name, "type": "textbox", "query": value, "current": current, "hide": 2}


def _annotations() -> list[dict[str, Any]]:
    return [
        {
            "name": "Deploys",
            "datasource": _PROMETHEUS,
            "enable": True,
            "iconColor": "blue",
            "expr": DEPLOYED,
            "step": "60s",
            "titleFormat": "Release {{version}} {{revision}}",
        },
        {
            "name": "Replays",
            "datasource": _POSTGRES,
            "enable": True,
            "iconColor": "purple",
            "target": {
                "refId": "replays",
                "editorMode": "code",
                "format": "table",
                "rawQuery": True,
                "rawSql": REPLAYED,
            },
        },
    ]


def _links() -> list[dict[str, Any]]:
    ours = _link("Filaviva", type="dashboards", tags=["filaviva"], asDropdown=True)
    return [ours | {"keepTime": True, "targetBlank": False}, _link("RabbitMQ", url=_BROKER_BOARD)]


def _link(title: str, **more: Any) -> dict[str, Any]:
    usual = {"type": "link", "icon": "external link", "tooltip": "", "url": "", "tags": []}
    how = {"asDropdown": False, "includeVars": False, "keepTime": False, "targetBlank": True}
    return {"title": title, **usual, **how, **more}
