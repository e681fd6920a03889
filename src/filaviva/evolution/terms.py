"""What a project says about its contracts: `[tool.filaviva.contracts]` in its pyproject.toml."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from filaviva.errors import ConfigurationError
from filaviva.evolution.catalog import Key
from filaviva.evolution.change import Change, Mode

_FILE: Final = "pyproject.toml"
_TABLE: Final = ("tool", "filaviva", "contracts")


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Waiver(_Table):
    """A change that a person has looked at and takes the blame for."""

    type: str
    version: int
    path: str
    kind: str
    reason: str = Field(min_length=1)

    def covers(self, key: Key, change: Change) -> bool:
        """Tell whether it is about this change."""
        return ((self.type, self.version), self.path, self.kind) == (
            key,
            change.path,
            change.kind,
        )


class Terms(_Table):
    """Where the files are, what is checked, and how strictly."""

    folder: Path = Path("contracts")
    app: str | None = None
    modules: tuple[str, ...] = ()
    tests: Path = Path("tests")
    mode: Mode = Mode.FULL_TRANSITIVE
    modes: Mapping[str, Mode] = {}
    waivers: tuple[Waiver, ...] = ()

    def mode_of(self, contract_type: str) -> Mode:
        """Give the mode of one type."""
        return self.modes.get(contract_type, self.mode)

    def waiver(self, key: Key, change: Change) -> Waiver | None:
        """Find who took a change on themselves."""
        return next((each for each in self.waivers if each.covers(key, change)), None)


def read_terms(project: Path) -> Terms:
    """Read a project's table; without one everything is as usual."""
    if not project.is_dir():
        raise ConfigurationError(f"--project: found {project}, expected a folder that is there")
    path = project / _FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        terms = Terms(**_table(content, path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise ConfigurationError(f"found {path}, but it is no TOML: {broken}") from None
    except OSError as unreadable:
        raise ConfigurationError(f"found {path}, but it cannot be read: {unreadable}") from None
    except ValidationError as wrong:
        first = wrong.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"{path}: tool.filaviva.contracts.{where}: found {first['input']!r}, {first['msg']}"
        ) from None
    return terms.model_copy(
        update={"folder": project / terms.folder, "tests": project / terms.tests}
    )


def _table(content: dict[str, Any], path: Path) -> dict[str, Any]:
    found: dict[str, Any] = content
    for number, name in enumerate(_TABLE, 1):
        found = found.get(name, {})
        if not isinstance(found, dict):
            named = ".".join(_TABLE[:number])
            raise ConfigurationError(f"{path}: {named}: found {found!r}, expected a table")
    return found
