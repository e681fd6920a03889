"""Set, list and remove what a tenant, or each of its end users, may have.

Before: a wish. After: the row and its audit entry are one commit; every process knows it within
five seconds, usually at once. May happen twice: setting the same again changes nothing.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import tables
from filaviva.errors import Flaw, NotFound, Rejected
from filaviva.limits import EVERY, WHOLE
from filaviva.operations import audit
from filaviva.tenants import EXPECTED, is_tenant

_FIGURES: Final = ("per_minute", "burst", "queued", "running")
_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Figures:
    """What is limited; None: not by this row."""

    per_minute: float | None = None
    burst: int | None = None
    queued: int | None = None
    running: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A limit as it is listed: `subject` "" is the tenant as a whole, "*" each of its subjects."""

    tenant: str
    subject: str
    per_minute: float | None
    burst: int | None
    queued: int | None
    running: int | None
    updated_at: datetime


async def put(
    connection: AsyncConnection, tenant: str, subject: str, figures: Figures, *, author: str
) -> None:
    """Set these figures; what is not given stays as it is."""
    given = {name: value for name in _FIGURES if (value := getattr(figures, name)) is not None}
    _check(tenant, subject, given)
    row = insert(tables.limits).values(
        tenant=tenant, subject=subject, updated_at=func.clock_timestamp(), **given
    )
    changed = {**given, "updated_at": func.clock_timestamp()}
    await connection.execute(
        row.on_conflict_do_update(index_elements=["tenant", "subject"], set_=changed)
    )
    detail = {"subject": subject, **given}
    await audit.record(
        connection, author=author, action="limit.set", tenant=tenant, target=tenant, detail=detail
    )


async def rows(connection: AsyncConnection, *, tenant: str | None = None) -> list[Row]:
    """List the limits, of one tenant or of all."""
    table = tables.limits
    wanted = select(*(table.c[one.name] for one in fields(Row))).order_by(
        table.c.tenant, table.c.subject
    )
    if tenant is not None:
        wanted = wanted.where(table.c.tenant == tenant)
    return [Row(*row) for row in await connection.execute(wanted)]


async def remove(connection: AsyncConnection, tenant: str, subject: str, *, author: str) -> None:
    """Remove a limit with all its figures; NotFound if there is none."""
    table = tables.limits
    gone = await connection.execute(
        delete(table).where(table.c.tenant == tenant, table.c.subject == subject)
    )
    if not gone.rowcount:
        raise NotFound(f"there is no limit for {place(tenant, subject)}")
    await audit.record(
        connection,
        author=author,
        action="limit.removed",
        tenant=tenant,
        target=tenant,
        detail={"subject": subject},
    )


def place(tenant: str, subject: str) -> str:
    """Say in words whom a limit is for."""
    whom = "every tenant" if tenant == EVERY else f"tenant {tenant}"
    if subject == WHOLE:
        return whom
    return f"each subject of {whom}" if subject == EVERY else f"subject {subject} of {whom}"


def _check(tenant: str, subject: str, given: dict[str, float]) -> None:
    flaws = [
        Flaw(f"/{name}", f"found {value}, expected {_least(name)}, at most {_MOST}")
        for name, value in given.items()
        if not (0 < value <= _MOST or (value == 0 and name == "queued"))
    ]
    if not given:
        flaws.append(Flaw("", "expected at least one of perMinute, queued and running"))
    if "burst" in given and "per_minute" not in given:
        flaws.append(Flaw("/burst", "expected perMinute too: the burst belongs to it"))
    if tenant != EVERY and not is_tenant(tenant):
        flaws.append(Flaw("/tenant", f"expected {EXPECTED}, or '*'"))
    if tenant == EVERY and subject not in (WHOLE, EVERY):
        flaws.append(Flaw("/subject", "a subject belongs to one tenant, expected '*' or none"))
    if flaws:
        detail = "; ".join(f"{flaw.pointer[1:]} {flaw.detail}".strip() for flaw in flaws)
        raise Rejected("invalid_request", detail, status=422, flaws=flaws)


def _least(name: str) -> str:
    return "0 or more" if name == "queued" else "more than 0"  # 0: nothing may wait
