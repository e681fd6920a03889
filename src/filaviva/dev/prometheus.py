"""A Prometheus of our own for a while: the machine's program, our configuration."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from filaviva.atomic import write_text
from filaviva.dev.observer import Observer
from filaviva.dev.packages import require

PROGRAM: Final = "prometheus"


def embedded_prometheus(
    state: Path, configuration: Mapping[str, Any], rules: Mapping[str, str]
) -> Observer:
    """Write its files, the rules beside those that the configuration names; its store is empty."""
    require("prometheus", present=PROGRAM)
    home = state / "prometheus"
    shutil.rmtree(home, ignore_errors=True)
    for name, text in rules.items():
        write_text(home / "rules" / name, text)
    told = {**configuration, "rule_files": [*configuration.get("rule_files", ())]}
    if rules:
        told["rule_files"].append(str(home / "rules" / "*.yml"))
    write_text(home / "prometheus.yml", yaml.safe_dump(told, sort_keys=False))
    return Observer(
        "prometheus",
        PROGRAM,
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        state=state,
    )
