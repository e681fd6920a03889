"""Who still uses which version of a contract: counted here, written down now and then.

Before: a submission or event is committed. After: within seconds the day's row of its sender says
one more. May happen twice: no; a process that dies takes a few seconds of counting with it, which
is as exact as "may this version go?" needs. Who sends few at a time adds them in its own commit.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeAlias

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.service import wait

log = structlog.get_logger("filaviva")

# An event's source is its publisher's to choose: beyond these, they are one.
_MOST_SOURCES: Final = 500
_OTHERS: Final = "others"
_LONGEST: Final = 200

_ADD: Final = """
INSERT INTO filaviva.contract_uses AS known (type, version, day, source, uses)
SELECT type, version, (now() AT TIME ZONE 'UTC')::date, source, uses
FROM unnest($1::text[], $2::int[], $3::text[], $4::bigint[]) AS x(type, version, source, uses)
ORDER BY type, version, source
ON CONFLICT (type, version, day, source) DO UPDATE SET
    uses = known.uses + excluded.uses, last_at = excluded.last_at
"""


Use: TypeAlias = tuple[str, int, str]
"""Type, version and sender."""


class Uses:
    """The uses of one process since they were last written down."""

    def __init__(self, engine: AsyncEngine, *, pause: float = 5) -> None:
        self._engine = engine
        self._pause = pause
        self._counted: dict[Use, int] = {}

    def count(self, kind: str, version: int, source: str, times: int = 1) -> None:
        """Count what this sender has sent, after the commit."""
        key = (kind, version, _sender(source))
        if key not in self._counted and len(self._counted) >= _MOST_SOURCES:
            key = (kind, version, _OTHERS)
        self._counted[key] = self._counted.get(key, 0) + times

    async def run(self, stop: asyncio.Event) -> None:
        """Write down until stopped, and then what is left."""
        while not stop.is_set():
            await wait(stop, self._pause)
            await self.step()
        await self.step()

    async def step(self) -> int:
        """Write down once; return how many rows. While the database is away they are kept."""
        counted, self._counted = self._counted, {}
        if not counted:
            return 0
        try:
            await transact(self._engine, lambda connection: add(connection, counted))
        except DATABASE_ERRORS as away:
            log.info("uses of contracts are written later", why=said(away))
            for (kind, version, source), times in counted.items():
                self.count(kind, version, source, times)
            return 0
        return len(counted)


async def add(connection: AsyncConnection, counted: Mapping[Use, int]) -> None:
    """Count these in the caller's transaction: that of what they have sent, or a later one."""
    if not counted:
        return
    # Shortened, two names may be one: twice the same key in one upsert is an error for ever.
    added: Counter[Use] = Counter()
    for (kind, version, source), times in counted.items():
        added[kind, version, _sender(source)] += times
    keys = sorted(added)
    kinds, versions, sources = (list(column) for column in zip(*keys, strict=True))
    uses = [added[key] for key in keys]
    await connection.exec_driver_sql(_ADD, (kinds, versions, sources, uses))


def _sender(source: str) -> str:
    return source[:_LONGEST].replace("\0", "")
