"""The rules and the Alertmanager's configuration as `deploy/` has them, for who has no clone.

`python -m filaviva.cli.reference` copies them; a test compares.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final

from filaviva.monitoring import objectives

ALERTS: Final = "filaviva-alerts.yml"
ALERTMANAGER: Final = "alertmanager.yml"
_ALERT: Final = re.compile(r"^\s*- alert: (\w+)$", re.MULTILINE)
_FOLDER: Final = "src/filaviva/monitoring/deployed"
_ORIGINALS: Final = {
    ALERTS: "deploy/prometheus/rules/filaviva-alerts.yml",
    ALERTMANAGER: "deploy/alertmanager/alertmanager.yml",
}


def text(name: str) -> str:
    """Give one of them."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def rules() -> Mapping[str, str]:
    """Give every rules file by its name."""
    return {ALERTS: text(ALERTS), "filaviva-objectives.yml": objectives.rules()}


def alerts() -> frozenset[str]:
    """Name every alert of the rules."""
    return frozenset(name for text in rules().values() for name in _ALERT.findall(text))


def _original(path: str) -> str:
    return (Path(__file__).parents[4] / path).read_text(encoding="utf-8")


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    f"{_FOLDER}/{name}": partial(_original, path) for name, path in _ORIGINALS.items()
}
