"""Act on PostgreSQL: settings in, one transaction or one engine, our own errors out."""

import asyncio
import logging
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.cli.here import environment
from filaviva.database import connect, redacted
from filaviva.database.transaction import (
    DATABASE_ERRORS,
    code,
    transact,
    transient,
    unreachable,
    words,
)
from filaviva.errors import ConfigurationError, FilavivaError, Rejected, Unreachable
from filaviva.settings import BrokerSettings, FromEnvironment, PostgresSettings, read
from filaviva.telemetry import logs

T = TypeVar("T")

_NO_ENTRY = ("28", "3D")  # a wrong user or password; no such database
_NO_TABLE, _NO_SCHEMA, _NO_COLUMN = "42P01", "3F000", "42703"


class DatabaseSettings(FromEnvironment):
    """What commands need that act on PostgreSQL alone."""

    postgres: PostgresSettings


class BrokerAddress(FromEnvironment):
    """What commands need that look at the broker."""

    broker: BrokerSettings


def author() -> str:
    """Name who acts: the user of the operating system."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container runs under a number without a name
        return str(os.getuid())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work to its end; what is logged meanwhile goes to stderr."""
    logs.configure(service="cli", level=logging.WARNING)
    # What the broker's library logs as an error is raised as well, and told in our words.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    return asyncio.run(work)


def on_engine(work: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    """Run work that makes its own transactions."""

    async def act() -> T:
        async with engine() as opened:
            return await work(opened)

    return run(act())


def on_connection(work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    """Run work in one transaction, which is committed."""

    async def act() -> T:
        async with engine() as opened:
            return await transact(opened, work)

    return run(act())


@asynccontextmanager
async def engine() -> AsyncIterator[AsyncEngine]:
    """Open an engine on the database that the settings name; its errors leave as our own."""
    url = read(DatabaseSettings, environment()).postgres.url.get_secret_value()
    try:
        opened = connect(url, name="filaviva-cli", size=4)
    except ValueError as wrong:
        raise ConfigurationError(f"FILAVIVA_POSTGRES__URL: {wrong}") from None
    try:
        with database_errors(url):
            yield opened
    finally:
        await opened.dispose()


async def guarded(work: Coroutine[Any, Any, T], url: str) -> T:
    """Await work that opens the database at this URL itself; its errors leave as our own."""
    with database_errors(url):
        return await work


@contextmanager
def database_errors(url: str) -> Iterator[None]:
    """Turn what the driver raises into an error with an exit code."""
    try:
        yield
    except DATABASE_ERRORS as error:
        raise ours(error, url) from error


def ours(error: Exception, url: str) -> FilavivaError:
    """Say what the driver raised in our words, with the next step."""
    where = redacted(url)
    if unreachable(error):
        return Unreachable(f"the database at {where} does not answer: {words(error)}")
    if (code(error) or "").startswith(_NO_ENTRY):
        detail = f"FILAVIVA_POSTGRES__URL: the database at {where} refuses: {words(error)}"
        return ConfigurationError(detail)
    if isinstance(error, ProgrammingError) and code(error) in (_NO_TABLE, _NO_SCHEMA, _NO_COLUMN):
        detail = f"the database at {where} is not set up for this release: run `filaviva setup`"
        return ConfigurationError(detail)
    if transient(error):
        detail = "somebody else is at work on the same rows; nothing was changed, try again"
        return Rejected("conflict", detail, status=409)
    return FilavivaError(f"the database at {where} refuses: {words(error)}")
