"""The panels that must show a cut provider: above 0 while it is away, 0 once that is over."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from filaviva.drill.contract import DrillCall
from filaviva.drilling.evidence import Seen
from filaviva.drilling.prometheus import Prometheus, Series
from filaviva.monitoring.boards import dead_letters, job_type, overview, retries
from filaviva.monitoring.panels import Board, Query

_WANTED: Final = (
    (overview.BOARD, "Retries"),
    (retries.BOARD, "Pauses that began"),
    (retries.BOARD, "Jobs in a pause"),
    (retries.BOARD, "Retries by class of error"),
    (job_type.BOARD, "Failed attempts by class of error"),
    (job_type.BOARD, "Share of failing executions by step"),
    (dead_letters.BOARD, "New"),
    (dead_letters.BOARD, "Open by type"),
)
# Grafana's own: so many scrapes, that a rate always has two.
_SCRAPES: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """One query of a panel."""

    panel: str
    expr: str


def questions(interval: float) -> Iterator[Question]:
    """Give the queries, with what Grafana puts in for its variables."""
    for board, title in _WANTED:
        for ask in _queries(board, title):
            expr = ask.expr.replace("$__rate_interval", f"{round(1000 * interval * _SCRAPES)}ms")
            expr = expr.replace("$type", DrillCall.contract_type)
            yield Question(f"{board.title} / {title}", expr)


async def look(
    prometheus: Prometheus, *, interval: float, since: float, until: float
) -> list[Seen]:
    """Ask every query for the most it showed between two moments, and for what it shows now."""
    seen = []
    for each in questions(interval):
        before = await prometheus.over(each.expr, since, until, max(interval, 1.0))
        after = await prometheus.now(each.expr)
        seen.append(Seen(each.panel, _most(before), _most(after)))
    return seen


def _queries(board: Board, title: str) -> list[Query]:
    found = [panel for panel in board.panels if panel.title == title]
    return [ask for panel in found for ask in panel.ask if isinstance(ask, Query)]


def _most(series: list[Series]) -> float | None:
    ours = [each for each in series if each.labels.get("type", _TYPE) == _TYPE]
    return max((value for each in ours for _, value in each.samples), default=None)


_TYPE: Final = DrillCall.contract_type
