"""Whose dead letters and failure groups a caller may see and act on."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, or_, true

from filaviva.database.tables import dead_letters


@dataclass(frozen=True, slots=True)
class Reach:
    """What a caller may see: one tenant's letters (None: everybody's) of some types (None: all).

    `foreign` adds the messages that are no job of ours and therefore nobody's.
    """

    tenant: str | None = None
    types: frozenset[str] | None = None
    foreign: bool = True

    def letters(self) -> ColumnElement[bool]:
        """Give the condition on `dead_letters`."""
        letter = dead_letters.c
        of_jobs: ColumnElement[bool] = letter.job_id.is_not(None)
        if self.tenant is not None:
            of_jobs = and_(letter.tenant == self.tenant, of_jobs)
        if self.types is not None:
            of_jobs = and_(of_types(letter.type, self.types), of_jobs)
        if not self.foreign:
            return of_jobs
        if self.tenant is None and self.types is None:
            return true()
        return or_(of_jobs, letter.job_id.is_(None))


EVERYTHING = Reach()


def of_types(column: ColumnElement[Any], types: Collection[str]) -> ColumnElement[bool]:
    """Give the condition that a row is of one of these types; an event's are its handlers'."""
    wanted = sorted(types)
    return or_(column.in_(wanted), func.split_part(column, ":", 1).in_(wanted))


def identifier(text: Any) -> UUID | None:
    """Read an id as a caller writes it; None if it cannot be one."""
    try:
        return text if isinstance(text, UUID) else UUID(str(text))
    except ValueError:
        return None
