"""The contracts that setup has published, cached: how the generic services know what is a job.

Before: `filaviva setup` has written the table `contracts`.
After:  type and version lead to a queue, a policy and a compiled schema.
May happen twice: a refresh replaces the same by the same.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.errors import ConfigurationError, Flaw
from filaviva.policy import StoredPolicy
from filaviva.refreshing import Refreshing
from filaviva.schemas import SchemaCheck

log = structlog.get_logger("filaviva")

CHANNEL: Final = "filaviva_contracts"
_SELECT: Final = """
SELECT type, version, app, queue, schema::text, result_schema::text, policy::text,
       deprecated_at, event, read_as, sunset, announced_at, examples::text
FROM filaviva.contracts ORDER BY type, version
"""


@dataclass(frozen=True, slots=True, eq=False)
class Registered:
    """One version of a contract, as it was published."""

    type: str
    version: int
    app: str
    queue: str | None
    schema: dict[str, Any]
    result_schema: dict[str, Any] | None
    policy: StoredPolicy
    check: SchemaCheck
    deprecated_at: datetime | None = None  # since then its app has no handler of it
    event: str | None = None  # the event that it handles
    read_as: int | None = None  # the version that its data is upcast to
    sunset: date | None = None  # its app means to read it until then
    announced_at: datetime | None = None  # since then that is said
    examples: list[Any] = field(default_factory=list)

    @property
    def deprecated(self) -> bool:
        """Whether nothing in its app reads it any more."""
        return self.deprecated_at is not None

    def validate(self, data: Any) -> list[Flaw]:
        """Find what is wrong with parsed data (`canonical.parse`); empty if it fits."""
        return list(self.check.flaws(data))


def _untold(_types: Mapping[str, Iterable[int]]) -> None:
    """Nobody wants to know the types."""


class Registry:
    """A cache of the published contracts, refreshed when setup says so and now and then."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        poll: float = 15,
        told: Callable[[Mapping[str, Iterable[int]]], None] = _untold,
    ) -> None:
        self._engine = engine
        self._told = told
        self._refreshing = Refreshing(engine, CHANNEL, self._read, poll=poll)
        self._contracts: dict[str, dict[int, Registered]] = {}
        self._rows: dict[tuple[Any, ...], Registered] = {}

    def find(self, type: str, version: int | None = None) -> Registered | None:  # noqa: A002
        """Find a contract; without a version the newest that is here to stay, or else read."""
        versions = self._contracts.get(type, {})
        if version is not None:
            return versions.get(version)
        read = [versions[number] for number in sorted(versions) if not versions[number].deprecated]
        staying = [each for each in read if each.sunset is None]
        return next(reversed(staying or read), None)

    def handles(self, event: str, version: int) -> bool:
        """Tell whether there is a handler of this version of an event."""
        return any(
            each.event == event and each.version == version and not each.deprecated
            for each in self._rows.values()
        )

    def versions(self, type: str) -> tuple[int, ...]:  # noqa: A002
        """Give the versions of a type, deprecated ones too."""
        return tuple(sorted(self._contracts.get(type, {})))

    def types(self) -> tuple[str, ...]:
        """Give every type."""
        return tuple(sorted(self._contracts))

    def all(self) -> list[Registered]:
        """Give every version of every type, in order."""
        return [
            self._contracts[kind][version]
            for kind in self.types()
            for version in self.versions(kind)
        ]

    async def refresh(self) -> None:
        """Read the table again; what did not change is not compiled again."""
        async with self._engine.connect() as connection:
            await self._read(connection)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the cache fresh until stopped; while the database is away the old one serves."""
        await self._refreshing.run(stop)

    async def step(self) -> int:
        """Refresh once; return how many versions there are."""
        await self._refreshing.step()
        return len(self._rows)

    async def _read(self, connection: AsyncConnection) -> None:
        rows = await _rows(connection)
        known = {row: self._rows.get(row) or _compiled(row) for row in rows}
        self._rows = {row: found for row, found in known.items() if found is not None}
        contracts: dict[str, dict[int, Registered]] = {}
        for registered in self._rows.values():
            contracts.setdefault(registered.type, {})[registered.version] = registered
        self._contracts = contracts
        self._told(contracts)


async def _rows(connection: AsyncConnection) -> list[tuple[Any, ...]]:
    found = await connection.exec_driver_sql(_SELECT)
    return [tuple(row) for row in found]


def _compiled(row: tuple[Any, ...]) -> Registered | None:
    kind, version, app, queue, schema, result_schema, policy, deprecated_at, event, *more = row
    read_as, sunset, announced_at, examples = more
    parsed = json.loads(schema)
    try:
        check = SchemaCheck(parsed)
    except ConfigurationError as broken:
        # One broken schema must not take the other contracts away.
        log.warning("contract left out", type=kind, version=version, app=app, why=str(broken))
        return None
    return Registered(
        type=kind,
        version=version,
        app=app,
        queue=queue,
        schema=parsed,
        result_schema=None if result_schema is None else json.loads(result_schema),
        policy=StoredPolicy.read(json.loads(policy)),
        check=check,
        deprecated_at=deprecated_at,
        event=event,
        read_as=read_as,
        sunset=sunset,
        announced_at=announced_at,
        examples=json.loads(examples),
    )
