"""Hear which jobs were canceled; what was missed, the heartbeat asks for at once."""

from collections.abc import Callable

import structlog

from filaviva.notify import EVERYTHING
from filaviva.operations.cancel import requests
from filaviva_worker.live import LiveJobs

log = structlog.get_logger("filaviva")


class Cancels:
    """Take notifications of `filaviva.notify.CANCELS` to the jobs that run here."""

    def __init__(self, live: LiveJobs, hurry: Callable[[], None]) -> None:
        self._live = live
        self._hurry = hurry

    def heard(self, payload: str | None) -> None:
        """Cancel what is named; None or everything: let the heartbeat look."""
        if payload is None or payload == EVERYTHING:
            self._hurry()
            return
        try:
            wanted = [*requests(payload)]
        except ValueError:  # anybody who reaches the database can notify
            log.warning("a cancel cannot be read", payload=payload[:100])
            return
        for job_id, fence in wanted:
            self._live.cancel(job_id, fence)
