"""How many streams may be open at once: of one holder, and in this process."""

import contextlib
from collections.abc import Iterator

from prometheus_client import Gauge

from filaviva.errors import Rejected

_SOON = 5.0


class Seats:
    """Seats for streams; a holder is an API key or a link."""

    def __init__(self, open_streams: Gauge, *, most: int) -> None:
        self._gauge = open_streams
        self._most = most
        self._open = 0
        self._held: dict[str, int] = {}

    @contextlib.contextmanager
    def taken(self, holder: str, *, each: int) -> Iterator[None]:
        """Hold a seat for as long as the block runs; Rejected if none is left."""
        if self._held.get(holder, 0) >= each:
            detail = f"{each} streams are open already, which is the limit: close some first"
            raise Rejected("too_many_streams", detail, status=429, retry_after=_SOON)
        if self._open >= self._most:
            detail = f"{self._most} streams are open here, which is the limit: poll with ?wait="
            raise Rejected("overloaded", detail, status=503, retry_after=_SOON)
        self._count(holder, 1)
        try:
            yield
        finally:
            self._count(holder, -1)

    def _count(self, holder: str, change: int) -> None:
        held = self._held.pop(holder, 0) + change
        if held:
            self._held[holder] = held
        self._open += change
        self._gauge.set(self._open)
