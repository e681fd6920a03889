"""How long this process has reached the database without a gap."""

import time
from collections.abc import Callable


class Presence:
    """Tell whether workers have had the time to renew their leases since the database came back.

    After an outage longer than a lease every lease looks expired, though its worker is alive and
    about to renew it: one lease and one heartbeat must pass first.
    """

    def __init__(
        self, *, lease_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        heartbeat = lease_seconds / 3
        self._longest_gap = heartbeat
        self._enough = lease_seconds + heartbeat
        self._clock = clock
        self._since: float | None = None
        self._last = clock()

    def reached(self) -> None:
        """Say that the database has just answered."""
        now = self._clock()
        # A process that was frozen has a gap too, though nothing failed.
        if self._since is None or now - self._last > self._longest_gap:
            self._since = now
        self._last = now

    def missed(self) -> None:
        """Say that the database did not answer."""
        self._since = None

    @property
    def steady(self) -> bool:
        """The last answer ends a time without gaps that is long enough."""
        return self._since is not None and self._last - self._since >= self._enough
