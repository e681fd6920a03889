"""Pages that are written from the code, so that they cannot say something else than it does."""

from collections.abc import Callable, Mapping
from typing import Final

from filaviva.cli import asyncapi
from filaviva.cli.reference import commands, environment, metrics
from filaviva.monitoring import boards, deployed, objectives

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    ".env.example": environment.example,
    "docs/reference/settings.md": environment.page,
    "docs/reference/metrics.md": metrics.page,
    "docs/reference/cli.md": commands.page,
    "contracts/asyncapi.yaml": asyncapi.own,
    "deploy/prometheus/rules/filaviva-objectives.yml": objectives.rules,
    **boards.PAGES,
    **deployed.PAGES,
}
