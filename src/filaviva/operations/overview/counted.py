"""What one process counted for all: every job that has not ended, every open letter.

Before: the counting process has counted. After `keep`: all who look can read it. May happen twice:
the last count stays. A count that is old is none: nobody counts any more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import simplejson
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.operations.overview.figures import Chosen, Count

_KEEP: Final = """
INSERT INTO filaviva.counted (counts) VALUES ($1::jsonb)
ON CONFLICT (one) DO UPDATE SET at = clock_timestamp(), counts = excluded.counts
"""
_LAST: Final = """
SELECT counts::text FROM filaviva.counted WHERE at > clock_timestamp() - interval '2 minutes'
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """All of them, as of some seconds ago."""

    jobs: Sequence[tuple[str, str, str, int]]  # queue, type, state, how many
    letters: Sequence[tuple[str | None, int]]

    def of_queue(self, queue: str, states: Iterable[str], chosen: Chosen) -> Count:
        """Count the jobs of a queue in these states."""
        number = sum(
            jobs
            for name, kind, state, jobs in self.jobs
            if name == queue and state in states and chosen.type(kind)
        )
        return Count(number, about=True)

    def of_types(self, chosen: Chosen) -> Mapping[str | None, Count]:
        """Count the letters by type."""
        return {kind: Count(n, about=True) for kind, n in self.letters if chosen.type(kind)}


async def keep(
    connection: AsyncConnection,
    jobs: Iterable[Sequence[Any]],
    letters: Iterable[Sequence[Any]],
) -> None:
    """Keep what was counted: rows of (queue, type, state, jobs), and of (type, letters)."""
    counts = {"jobs": [list(row) for row in jobs], "letters": [list(row) for row in letters]}
    await connection.exec_driver_sql(_KEEP, (simplejson.dumps(counts),))


async def last(connection: AsyncConnection) -> Counted | None:
    """Give what was counted last; None if that is long ago."""
    rows = await fetch(connection, _LAST)
    if not rows:
        return None
    counts = simplejson.loads(rows[0][0])
    return Counted([tuple(row) for row in counts["jobs"]], [tuple(r) for r in counts["letters"]])
