"""Waiting for a fact, with a time limit."""

import time
from collections.abc import Callable
from datetime import timedelta

_GLANCE = 0.05


class NotReady(Exception):
    """The server or service did not become ready in time, or died on the way."""


def wait_until(
    fact: Callable[[], bool],
    *,
    patience: timedelta,
    what: str,
    still_possible: Callable[[], bool] = lambda: True,
) -> None:
    """Return once the fact holds; raise NotReady when it cannot or the time is up."""
    limit = time.monotonic() + patience.total_seconds()
    while not fact():
        if not still_possible():
            raise NotReady(f"{what}: ended before it was ready")
        if time.monotonic() > limit:
            raise NotReady(f"{what}: not ready after {patience.total_seconds():.0f} s")
        time.sleep(_GLANCE)
