"""What a run of the embedded stack is asked for."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from filaviva.dev.broker import Version


def installed_services() -> dict[str, list[str]]:
    """The services that are installed, each with the command that runs it."""
    found = {}
    for entry in entry_points(group="filaviva.services"):
        package = entry.module.partition(".")[0]
        if find_spec(f"{package}.__main__") is not None:
            found[entry.name] = [sys.executable, "-m", package]
    return found


def create_key(postgres_url: str) -> str:
    """Make an API key with every scope; return its token."""
    # Loaded here: who only wants servers needs neither SQLAlchemy nor our operations.
    from filaviva.database import connect  # noqa: PLC0415
    from filaviva.operations import keys  # noqa: PLC0415

    async def create() -> str:
        engine = connect(postgres_url, name="filaviva-dev", size=1)
        try:
            made = await keys.create(engine, name="dev", tenant="default", scopes=keys.SCOPES)
            return made.token
        finally:
            await engine.dispose()

    return asyncio.run(create())


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of Filaviva that the stack runs; tests put stand-ins here."""

    services: Mapping[str, list[str]] = field(default_factory=installed_services)
    setup: list[str] = field(
        default_factory=lambda: [sys.executable, "-m", "filaviva.cli", "setup"]
    )
    create_key: Callable[[str], str] = create_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run, as asked for."""

    state: Path
    app: str | None = None
    services: tuple[str, ...] = ()
    workers: int = 1
    broker_version: Version = "system"
    reload: bool = False
