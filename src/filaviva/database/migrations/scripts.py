"""Run a migration's scripts, which are plain SQL, and refuse to take one back."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from alembic import op

# A statement ends where a line does and another one begins, or nothing: not within a function.
_END = re.compile(r";\n(?=\n|CREATE|ALTER|DROP|--|\Z)")


def run(script: Path) -> None:
    """Run a script statement by statement: the driver prepares each."""
    for statement in statements(script.read_text(encoding="utf-8")):
        op.get_bind().exec_driver_sql(statement)


def statements(script: str) -> Iterator[str]:
    """Give the statements of a script, without parts that are comments alone."""
    return (part for part in _END.split(script) if _says_something(part))


def refuse(revision: str) -> NoReturn:
    """Refuse: a database that holds jobs is restored from a backup, not taken back."""
    raise NotImplementedError(f"{revision} cannot be taken back; restore a backup instead")


def _says_something(statement: str) -> bool:
    lines = (line.strip() for line in statement.splitlines())
    return any(line and not line.startswith("--") for line in lines)
