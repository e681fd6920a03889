"""The list to go through before the first job in production.

Before: two addresses, and what whoever asks adds to them. After: a finding for each point; nothing
was changed but by what was asked for by name (a test alert, a job that is sent twice).
May happen twice: always.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final, TypeAlias

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database import connect
from filaviva.database.transaction import DATABASE_ERRORS, unreachable, words
from filaviva.operations.doctor.bounded import ANSWER_SECONDS, within
from filaviva.operations.doctor.broker import Addresses
from filaviva.operations.doctor.finding import Finding, unknown
from filaviva.operations.doctor.production import (
    access,
    bounds,
    broker,
    drill,
    leases,
    postgres,
    replicas,
    scraped,
    sent_twice,
    telling,
    versions,
)
from filaviva.operations.doctor.production.sight import Asked, Process, Sight, patient, processes

__all__ = ["Asked", "examine_production"]

Check: TypeAlias = Callable[[Sight], AsyncIterator[Finding]]

# In the order of the page that explains them: docs/howto/go-to-production.md.
_GROUPS: Final[tuple[tuple[str, Check], ...]] = (
    ("sent twice", sent_twice.examine),
    ("limits and classes", bounds.examine),
    ("alerts arrive", telling.examine),
    ("leases and times", leases.examine),
    ("versions", versions.examine),
    ("metrics", scraped.examine),
    ("drill", drill.examine),
    ("processes", replicas.examine),
    ("access", access.examine),
    ("broker", broker.examine),
    ("database", postgres.examine),
)
# Only who waits for a message to arrive needs longer than a question takes.
_SECONDS: Final = {"sent twice": 30.0, "alerts arrive": 40.0}


async def examine_production(
    database_url: str, addresses: Addresses, asked: Asked
) -> list[Finding]:
    """Go through the list; what cannot be looked at is a finding, never an error."""
    engine = connect(database_url, name="filaviva-doctor", size=len(_GROUPS))
    sight = Sight(engine=engine, database_url=database_url, addresses=addresses, asked=asked)
    nobody: list[Finding] = []
    try:
        try:
            sight = replace(sight, processes=await _seen(engine))
        except DATABASE_ERRORS as refused:
            late = f"it does not answer within {ANSWER_SECONDS:g} s"
            why = late if isinstance(refused, TimeoutError) else words(refused)
            nobody = [_nobody_known(why)]
            away = f"the database: {why}" if unreachable(refused) else None
            sight = replace(sight, unseen=why, away=away)
        looks = (
            within(name, check(sight), group=name, seconds=_SECONDS.get(name, 10.0))
            for name, check in _GROUPS
        )
        found = [each for group in await asyncio.gather(*looks) for each in group]
    finally:
        await engine.dispose()
    return nobody + found


async def _seen(engine: AsyncEngine) -> list[Process]:
    async with asyncio.timeout(ANSWER_SECONDS), engine.connect() as connection:
        return await processes(await patient(connection))


def _nobody_known(why: str) -> Finding:
    next_step = "see what is said of the database; run `filaviva setup` if it has no such table"
    return unknown("who runs", f"nobody knows who runs: {why}", next_step)
