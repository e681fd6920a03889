"""Statements that end or begin a transaction: a handler's may not.

One `ROLLBACK` among the effects of a batch would undo the completions of a hundred other jobs. One
`COMMIT` inside `ctx.transaction()` would keep what was written though the lease is lost, and let
all that follows pass without a fence.
"""

import re
from typing import Any, Final

from sqlalchemy import Executable, event
from sqlalchemy.ext.asyncio import AsyncEngine
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
# Savepoints stay inside the transaction.
_END: Final = re.compile(
    r"(?:begin|start\s+transaction|commit|end|abort|prepare\s+transaction"
    r"|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b))\b",
    re.IGNORECASE,
)


def guard(engine: AsyncEngine) -> None:
    """Let no statement on this engine end its transaction: TypeError, before it is sent."""
    event.listen(engine.sync_engine, "before_cursor_execute", _refuse_end)


def _refuse_end(_connection: object, _cursor: object, statement: str, *_: Any) -> None:
    found = _END.match(statement, _end_of_comments(statement))
    if found is not None:
        raise TypeError(
            f"ctx.transaction: found {found.group().upper()}, expected no statement that ends the "
            "transaction: leave the block to commit, raise in it to roll back"
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
