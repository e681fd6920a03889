"""Keep what each drill has found: whoever goes to production asks when the last one passed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import simplejson
from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from uuid_utils.compat import uuid7

from filaviva.database.tables import drills

SENT_TWICE: Final = "the same Idempotency-Key twice is one job"

_COLUMNS: Final = (
    drills.c.id,
    drills.c.author,
    drills.c.began_at,
    drills.c.ended_at,
    drills.c.passed,
    drills.c.cut_seconds,
    drills.c.report,
)


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill that has come to its end, and its verdict."""

    id: UUID
    author: str
    began_at: datetime
    ended_at: datetime
    passed: bool
    cut_seconds: float
    report: Mapping[str, Any]


async def begin(connection: AsyncConnection, *, author: str, cut_seconds: float) -> UUID:
    """Note that a drill begins."""
    id_ = uuid7()
    await connection.execute(
        insert(drills).values(
            id=id_,
            author=author,
            began_at=func.clock_timestamp(),
            passed=False,
            cut_seconds=cut_seconds,
        )
    )
    return id_


async def end(
    connection: AsyncConnection, id_: UUID, *, passed: bool, report: Mapping[str, Any]
) -> None:
    """Note how it ended; a second end changes nothing."""
    await connection.execute(
        update(drills)
        .where(drills.c.id == id_, drills.c.ended_at.is_(None))
        .values(
            ended_at=func.clock_timestamp(),
            passed=passed,
            report=simplejson.loads(simplejson.dumps(dict(report), default=str)),
        )
    )


async def last(connection: AsyncConnection, *, passed: bool = False) -> Drill | None:
    """Give the last drill that has ended, or the last that has passed; None: there was none."""
    wanted = drills.c.passed if passed else drills.c.ended_at.is_not(None)
    newest = select(*_COLUMNS).where(wanted).order_by(drills.c.ended_at.desc()).limit(1)
    found = (await connection.execute(newest)).one_or_none()
    return None if found is None else Drill(*found)


async def last_that_held(connection: AsyncConnection, fact: str) -> Drill | None:
    """Give the last drill that found this fact to hold, whatever it found besides."""
    told = {"facts": [{"name": fact, "holds": True}]}
    wanted = (drills.c.ended_at.is_not(None), drills.c.report.contains(told))
    newest = select(*_COLUMNS).where(*wanted).order_by(drills.c.ended_at.desc()).limit(1)
    found = (await connection.execute(newest)).one_or_none()
    return None if found is None else Drill(*found)
