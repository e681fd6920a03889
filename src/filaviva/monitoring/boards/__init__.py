"""The dashboards, in the order of the questions: is it well, what is it, whose is it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from filaviva.monitoring import grafana
from filaviva.monitoring.boards import (
    cost,
    dead_letters,
    job_type,
    messages,
    overview,
    retries,
    tenants,
    workers,
)
from filaviva.monitoring.panels import Board

BOARDS: Final[Sequence[Board]] = (
    overview.BOARD,
    job_type.BOARD,
    workers.BOARD,
    retries.BOARD,
    dead_letters.BOARD,
    cost.BOARD,
    tenants.BOARD,
    messages.BOARD,
)
FOLDER: Final = "deploy/grafana/dashboards"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    f"{FOLDER}/{board.uid}.json": partial(grafana.page, board) for board in BOARDS
}
