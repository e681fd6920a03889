"""What tenants and their end users may have, in memory: who has no limit pays nothing.

Before: rows of the table `limits`. After: the figures that hold for one tenant or subject.
May happen twice: a refresh replaces the same by the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.fetch import fetch
from filaviva.refreshing import Refreshing

CHANNEL: Final = "filaviva_limits"
EVERY: Final = "*"
WHOLE: Final = ""

_SELECT: Final = "SELECT tenant, subject, per_minute, burst, queued, running FROM filaviva.limits"


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that one tenant or subject may have; None: as much as it likes."""

    per_minute: float | None = None
    burst: float | None = None
    queued: int | None = None
    running: int | None = None

    def else_of(self, general: "Limit") -> "Limit":
        """Take what is not set here from a more general limit; pace and burst go together."""
        pace = self if self.per_minute is not None else general
        return Limit(
            pace.per_minute,
            pace.burst if pace.burst is not None else pace.per_minute,
            general.queued if self.queued is None else self.queued,
            general.running if self.running is None else self.running,
        )

    @property
    def submissions(self) -> bool:
        """It says something about submissions."""
        return self.per_minute is not None or self.queued is not None


NONE: Final = Limit()


class TenantLimits(Refreshing):
    """The table of limits, at most `poll` seconds old."""

    def __init__(self, engine: AsyncEngine, *, poll: float = 5) -> None:
        super().__init__(engine, CHANNEL, self._read, poll=poll)
        self._rows: Mapping[tuple[str, str], Limit] = {}
        self._find = lru_cache(maxsize=4096)(self._resolved)
        self.on_submissions = False
        self.on_runs = False
        self.runs_of_everybody = False
        self.runs_of: list[str] = []

    def tenant(self, tenant: str) -> Limit:
        """Give what holds for the tenant as a whole."""
        return self._find(tenant, WHOLE) if self._rows else NONE

    def subject(self, tenant: str, subject: str | None) -> Limit:
        """Give what holds for one end user of the tenant; nobody has no limit."""
        return self._find(tenant, subject) if self._rows and subject else NONE

    def limits_runs_of(self, tenant: str) -> bool:
        """Tell whether some limit says how many jobs of this tenant or its subjects may run."""
        return self.runs_of_everybody or tenant in self.runs_of

    def hold(self, limits: Mapping[tuple[str, str], Limit]) -> None:
        """Take these limits, by tenant and subject."""
        self._rows = limits
        self._find.cache_clear()
        running = {tenant for (tenant, _), limit in limits.items() if limit.running is not None}
        self.on_submissions = any(limit.submissions for limit in limits.values())
        self.on_runs = bool(running)
        self.runs_of_everybody = EVERY in running
        self.runs_of = sorted(running - {EVERY})

    async def _read(self, connection: AsyncConnection) -> None:
        self.hold(_by_place(await fetch(connection, _SELECT)))

    def _resolved(self, tenant: str, subject: str) -> Limit:
        places = [(tenant, subject), (EVERY, WHOLE)]
        if subject != WHOLE:
            places = [(tenant, subject), (tenant, EVERY), (EVERY, EVERY)]
        found = NONE
        for place in places:
            found = found.else_of(self._rows.get(place, NONE))
        return found


def _by_place(rows: Iterable[Any]) -> dict[tuple[str, str], Limit]:
    return {(row[0], row[1]): Limit(*row[2:]) for row in rows}
