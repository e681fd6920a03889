"""Effects: users' statements, grouped so that a batch of jobs costs a handful of round trips.

Statements that differ only in their values are one prepared statement with many parameter sets.
Each job's own statements keep their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from sqlalchemy import Executable
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement


class _Form:
    """What equal statements share: the text, and how to read their values out of each."""

    def __init__(self, compiled: SQLCompiler) -> None:
        self.compiled = compiled
        self.text = str(compiled)
        self.names = compiled.positiontup or []
        # No public way leads to the values of a statement's form.
        self.processors: Mapping[str, Any] = compiled._bind_processors  # noqa: SLF001

    def values(self, key: Any) -> tuple[Any, ...]:
        """Read the values of one statement of this form."""
        found = self.compiled.construct_params(
            extracted_parameters=key.bindparams, escape_names=False
        )
        process = self.processors
        return tuple(
            process[name](found[name]) if name in process else found[name] for name in self.names
        )


class _Forms:
    """Compiled forms by cache key; statements that need more than their values have none."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._known: dict[Any, _Form | None] = {}

    def of(self, statement: ClauseElement, key: Any) -> _Form | None:
        """Find or compile the form of a statement."""
        if key.key not in self._known:
            if len(self._known) >= 500:  # noqa: PLR2004 - an app has a handful; do not grow for ever
                self._known.clear()
            self._known[key.key] = self._compile(statement, key)
        return self._known[key.key]

    def _compile(self, statement: ClauseElement, key: Any) -> _Form | None:
        compiled = statement.compile(dialect=self._dialect, cache_key=key, for_executemany=True)
        if not isinstance(compiled, SQLCompiler) or not (
            compiled.isinsert or compiled.isupdate or compiled.isdelete
        ):
            return None
        more = (
            compiled.insert_prefetch
            or compiled.update_prefetch
            or compiled.post_compile_params
            or compiled.literal_execute_params
        )
        return None if more else _Form(compiled)


_forms = lru_cache(maxsize=4)(_Forms)


async def apply(connection: AsyncConnection, jobs: Iterable[Sequence[Executable]]) -> None:
    """Execute the statements of all jobs: all first ones, then all second ones, and so on."""
    for turn in zip_longest(*jobs):
        await _apply_together(connection, [each for each in turn if each is not None])


async def _apply_together(connection: AsyncConnection, statements: Sequence[Executable]) -> None:
    if len(statements) == 1:
        await connection.execute(statements[0])
        return
    forms = _forms(connection.dialect)
    groups: dict[_Form, list[tuple[Any, ...]]] = {}
    for statement in statements:
        form, key = _form(forms, statement)
        if form is None:
            await connection.execute(statement)
        else:
            groups.setdefault(form, []).append(form.values(key))
    for form, values in groups.items():
        await connection.exec_driver_sql(form.text, values)


def _form(forms: _Forms, statement: Executable) -> tuple[_Form | None, Any]:
    if not isinstance(statement, ClauseElement):
        return None, None
    key = statement._generate_cache_key()  # noqa: SLF001 - SQLAlchemy's own key of a statement's form
    return (None, None) if key is None else (forms.of(statement, key), key)
