"""Lines: connections that a hot station keeps, with nothing between it and the driver.

Taking a connection from the pool and giving it back costs a lone statement more than the statement
itself does (measured: 0.25 of 0.3 ms). A line is taken from the engine once and kept, in
autocommit; a transaction on it is begun and ended here.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias

import asyncpg
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


class Line:
    """One kept connection: `driver` for hand-written statements, `connection` for SQLAlchemy's."""

    def __init__(self, connection: AsyncConnection, driver: "asyncpg.Connection[Any]") -> None:
        self.connection = connection
        self._driver = driver

    async def fetch(self, statement: str, arguments: tuple[Any, ...]) -> Sequence[Any]:
        """Execute one statement as the driver takes it, and give all rows."""
        with self._lost():
            rows: Sequence[Any] = await self._driver.fetch(statement, *arguments)
        return rows

    async def execute(self, command: str) -> None:
        """Execute a command that gives no rows."""
        with self._lost():
            await self._driver.execute(command)

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except asyncpg.InternalClientError as confused:
            # The server has said goodbye, and the driver has not noticed that yet.
            self._driver.terminate()
            raise ConnectionResetError("the server ended the connection") from confused

    def sound_after(self, error: BaseException) -> bool:
        """Tell whether the server refused something and the connection is as good as before."""
        refused = isinstance(error, Exception) and not isinstance(error, TimeoutError)
        return refused and not self._driver.is_closed() and not self._driver.is_in_transaction()

    def cut(self) -> None:
        """End the connection without a word to the server."""
        self._driver.terminate()
        if self.connection.sync_connection is not None:
            self.connection.sync_connection.invalidate()


# What a hand-written statement runs on.
Connected: TypeAlias = AsyncConnection | Line


class Lines:
    """The lines of one station: as many as it uses at once."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._free: list[Line] = []
        event.listen(engine.sync_engine, "engine_disposed", self._cut)
        self.single = Single(self)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        """Lend a line; each statement on it commits by itself."""
        line = self._free.pop() if self._free else await self._open()
        try:
            yield line
        except BaseException as error:
            if line.sound_after(error):
                self._free.append(line)
            else:
                line.cut()
            raise
        self._free.append(line)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Line]:
        """Lend a line within a transaction, which commits at the end or is undone by an error."""
        async with self.line() as line:
            await line.execute("BEGIN")
            try:
                yield line
            except TimeoutError:
                raise  # nobody would answer a ROLLBACK either: the line is cut
            except Exception:
                with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                    await line.execute("ROLLBACK")
                raise
            await line.execute("COMMIT")

    async def _open(self) -> Line:
        connection = await self._engine.connect()
        raw = await connection.get_raw_connection()
        driver = raw.driver_connection
        raw.detach()  # the pool may open another in its place
        return Line(connection, driver)

    def _cut(self, _engine: object) -> None:
        while self._free:
            self._free.pop().cut()


class Single:
    """The same lines for work that is one statement, which needs no BEGIN and no COMMIT."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Line]:
        """Lend a line; the statement on it commits by itself."""
        async with self._lines.line() as line:
            yield line
