"""Statements that end or begin a transaction: no effect may, it commits with others'.

One `ROLLBACK` among the effects of a batch would undo the completions of a hundred other jobs.
"""

import re
from typing import Final

from sqlalchemy import Executable
from sqlalchemy.sql.elements import (
    ReleaseSavepointClause,
    RollbackToSavepointClause,
    SavepointClause,
    TextClause,
)

# PostgreSQL nests block comments; one level is what people write.
_LEADING: Final = re.compile(r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_CONTROL: Final = re.compile(
    r"(?:begin|start\s+transaction|commit|end|rollback|abort|savepoint|release"
    r"|prepare\s+transaction|set\s+(?:local\s+|session\s+)?transaction"
    r"|set\s+session\s+characteristics)\b",
    re.IGNORECASE,
)


def refuse_control(statement: Executable) -> None:
    """Raise TypeError if the statement is one that controls a transaction."""
    if isinstance(statement, SavepointClause | RollbackToSavepointClause | ReleaseSavepointClause):
        raise TypeError(_refusal(type(statement).__name__))
    if not isinstance(statement, TextClause):
        return
    found = _CONTROL.match(statement.text, _end_of_comments(statement.text))
    if found is not None:
        raise TypeError(_refusal(" ".join(found.group().upper().split())))


def _end_of_comments(text: str) -> int:
    leading = _LEADING.match(text)
    return 0 if leading is None else leading.end()


def _refusal(found: str) -> str:
    return (
        f"ctx.effect: found {found}, expected a statement that changes rows: an effect commits "
        "with the completion of its job and of others; for a transaction of your own there is "
        "ctx.transaction()"
    )
