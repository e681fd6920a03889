"""Which errors say that the database was not there."""

import asyncpg
import pytest

from filaviva.database.transaction import DATABASE_ERRORS, transient, unreachable


@pytest.mark.parametrize(
    "gone",
    [
        ConnectionResetError(),
        TimeoutError(),
        asyncpg.ConnectionDoesNotExistError(),
        asyncpg.CannotConnectNowError(),
        asyncpg.AdminShutdownError(),
        asyncpg.CrashShutdownError(),
        asyncpg.InterfaceError("the connection is closed"),
        asyncpg.InternalClientError("cannot switch to state 11; another operation is in progress"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_server_that_went_away_is_an_absence_however_the_driver_says_it(
    gone: BaseException,
) -> None:
    assert isinstance(gone, DATABASE_ERRORS)
    assert unreachable(gone)
    assert transient(gone)


def test_a_refusal_is_no_absence() -> None:
    assert not unreachable(asyncpg.UniqueViolationError())
