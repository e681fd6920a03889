"""How many streams may be open at once: of one holder, of one tenant, and in this process."""

import contextlib
from collections.abc import Iterable, Iterator

from prometheus_client import Gauge

from filaviva.errors import Rejected

_SOON = 5.0


class Seats:
    """Seats for streams; a holder is an API key or a link, and belongs to a tenant."""

    def __init__(self, open_streams: Gauge, *, most: int, of_a_tenant: int) -> None:
        self._gauge = open_streams
        self._most = most
        self._of_a_tenant = of_a_tenant
        self._open = 0
        self._held: dict[tuple[str, str], int] = {}

    @contextlib.contextmanager
    def taken(self, tenant: str, holder: str, *, each: int) -> Iterator[None]:
        """Hold a seat for as long as the block runs; Rejected if none is left."""
        whose = {("key or link", holder): each, ("tenant", tenant): self._of_a_tenant}
        for one, limit in whose.items():
            if self._held.get(one, 0) >= limit:
                detail = f"{limit} streams of this {one[0]} are open, the limit: close some first"
                raise Rejected("too_many_streams", detail, status=429, retry_after=_SOON)
        if self._open >= self._most:
            detail = f"{self._most} streams are open here, which is the limit: poll with ?wait="
            raise Rejected("overloaded", detail, status=503, retry_after=_SOON)
        self._count(whose, 1)
        try:
            yield
        finally:
            self._count(whose, -1)

    def _count(self, whose: Iterable[tuple[str, str]], change: int) -> None:
        for one in whose:
            held = self._held.pop(one, 0) + change
            if held:
                self._held[one] = held
        self._open += change
        self._gauge.set(self._open)
