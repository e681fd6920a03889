"""Run a piece of work in a transaction, again when the database asks for it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

import asyncpg
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolExhausted

T = TypeVar("T")
C_co = TypeVar("C_co", covariant=True)

_SERIALIZATION_FAILURE = "40001"
_DEADLOCK = "40P01"
_LOCK_NOT_AVAILABLE = "55P03"
_CANCELED = "57014"  # by the statement's time limit
_TRIES = 5
_LONGEST = 200

# Everything that can come out of a statement; while it connects, SQLAlchemy lets the driver's own
# errors and the system's through.
DATABASE_ERRORS = (
    DBAPIError,
    PendingRollbackError,  # asked once more on a connection that was lost
    PoolExhausted,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server has said goodbye, the driver has not noticed yet
    OSError,
    TimeoutError,
)
_ABSENCES = (
    OSError,
    TimeoutError,
    PendingRollbackError,
    PoolExhausted,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

# 08 connection, 53 resources, 57 shutdown and crash, 25006 a standby that was just promoted from.
_ABSENT = ("08", "53", "57P", "25006")


class Begins(Protocol[C_co]):
    """What a transaction is begun on: an engine, or the lines of a station."""

    def begin(self) -> AbstractAsyncContextManager[C_co]: ...


async def transact(engine: Begins[C_co], work: Callable[[C_co], Awaitable[T]]) -> T:
    """Commit the work and give its result; after a deadlock do all of it again, afresh."""
    for _ in range(_TRIES - 1):
        try:
            return await _once(engine, work)
        except (DBAPIError, asyncpg.PostgresError) as refused:
            if code(refused) not in (_SERIALIZATION_FAILURE, _DEADLOCK):
                raise
            await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311 - spreads the rivals
    return await _once(engine, work)


async def _once(engine: Begins[C_co], work: Callable[[C_co], Awaitable[T]]) -> T:
    async with engine.begin() as connection:
        return await work(connection)


def code(error: BaseException) -> str | None:
    """Give the SQLSTATE of a database error; None when the server did not say one."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    found: str | None = getattr(origin, "sqlstate", None)
    return found


def words(error: BaseException) -> str:
    """Give what the server or the system said, in one line, without the library's frame."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    said = str((origin and origin.__cause__) or origin or error)
    return said.splitlines()[0] if said else type(error).__name__


def said(error: BaseException) -> str:
    """Give what a log line may say of an error: of what the server refused the code alone.

    Its words, and the library's around them, quote the values of the statement.
    """
    if unreachable(error) or locked(error):
        return f"{type(error).__name__}: {words(error)}"[:_LONGEST]
    return f"{type(error).__name__}: SQLSTATE {code(error)}"


def unreachable(error: BaseException) -> bool:
    """Tell whether the database was not there, as against: it refused what was asked."""
    if isinstance(error, _ABSENCES):
        return True
    if not isinstance(error, DBAPIError | asyncpg.PostgresError):
        return False
    found = code(error)
    return found is None or found.startswith(_ABSENT)


def locked(error: BaseException) -> bool:
    """Tell whether somebody else held a row for longer than we wait."""
    return code(error) == _LOCK_NOT_AVAILABLE


def transient(error: BaseException) -> bool:
    """Tell whether our own statement may pass later: nobody there, rivals, or too much to do."""
    rivals = (_LOCK_NOT_AVAILABLE, _SERIALIZATION_FAILURE, _DEADLOCK, _CANCELED)
    return unreachable(error) or code(error) in rivals
