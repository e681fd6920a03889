"""Prometheus reads the rules, and each fires when it should."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
TRIED = sorted((ROOT / "deploy/prometheus/tests").glob("*.yml"))


def promtool(*arguments: object) -> str:
    """Run promtool; it must be there in CI."""
    if shutil.which("promtool") is None and not os.environ.get("CI"):
        pytest.skip("promtool is not installed: run `make servers` as root, or install prometheus")
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_well_formed() -> None:
    promtool("check", "rules", *RULES)
    promtool("check", "config", ROOT / "deploy/prometheus/prometheus.yml")


@pytest.mark.parametrize("path", TRIED, ids=lambda path: path.stem)
def test_each_rule_fires_when_it_should_and_not_before(path: Path) -> None:
    promtool("test", "rules", path)
