"""Effects: users' statements, grouped so that a batch of jobs costs a handful of round trips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Executable
from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, slots=True)
class Effect:
    """One statement of one job, with its parameters where it has none of its own."""

    statement: Executable
    parameters: Mapping[str, Any] | None = None


async def apply(connection: AsyncConnection, effects: Sequence[Effect]) -> None:
    """Execute all effects in order; runs of one statement object go as one `executemany`."""
    group: list[Mapping[str, Any]] = []
    current: Executable | None = None
    for effect in effects:
        if effect.statement is not current:
            await _execute(connection, current, group)
            current, group = effect.statement, []
        if effect.parameters is None:
            await connection.execute(effect.statement)
            current = None
        else:
            group.append(effect.parameters)
    await _execute(connection, current, group)


async def _execute(
    connection: AsyncConnection, statement: Executable | None, group: Sequence[Mapping[str, Any]]
) -> None:
    if statement is not None and group:
        await connection.execute(statement, list(group))
