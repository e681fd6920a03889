"""Effects: users' statements, grouped so that a batch of jobs costs a handful of round trips.

Statements that differ only in their values are one prepared statement with many parameter sets;
where the values come as parameters, nothing has to be read out of the statement. Each job's own
statements keep their order.
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

from filaviva.outcome import Effect


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


class _Groups:
    """The effects of one turn, put together where one statement can do them all."""

    def __init__(self, forms: _Forms) -> None:
        self._forms = forms
        self.alone: list[Effect] = []
        self.by_values: dict[_Form, list[tuple[Any, ...]]] = {}
        self.by_parameters: dict[Any, tuple[Executable, list[Mapping[str, Any]]]] = {}
        self._names: dict[int, Any] = {}  # what each statement object is called below

    def add(self, effect: Effect) -> None:
        """Put one effect where it belongs."""
        statement, parameters = effect
        if parameters is not None:
            name = (self._name(statement), frozenset(parameters))
            self.by_parameters.setdefault(name, (statement, []))[1].append(parameters)
            return
        key = _key(statement)
        form = None if key is None else self._forms.of(statement, key)
        if form is None:
            self.alone.append(effect)
        else:
            self.by_values.setdefault(form, []).append(form.values(key))

    def _name(self, statement: Executable) -> Any:
        """The same for all statements that differ in nothing: mostly it is the same object."""
        known = self._names.get(id(statement))
        if known is None:
            key = _key(statement)
            own = key is None or not all(bind.required for bind in key.bindparams)
            known = self._names[id(statement)] = id(statement) if own else key.key
        return known


async def apply(connection: AsyncConnection, jobs: Iterable[Sequence[Effect]]) -> None:
    """Execute the effects of all jobs: all first ones, then all second ones, and so on."""
    for turn in zip_longest(*jobs):
        await _apply_together(connection, [each for each in turn if each is not None])


async def _apply_together(connection: AsyncConnection, effects: Sequence[Effect]) -> None:
    if len(effects) == 1:
        await connection.execute(*effects[0])
        return
    groups = _Groups(_forms(connection.dialect))
    for effect in effects:
        groups.add(effect)
    for effect in groups.alone:
        await connection.execute(effect.statement)
    for form, values in groups.by_values.items():
        await connection.exec_driver_sql(form.text, values)
    for statement, parameters in groups.by_parameters.values():
        await connection.execute(statement, parameters)


def _key(statement: Executable) -> Any:
    if not isinstance(statement, ClauseElement):
        return None
    return statement._generate_cache_key()  # noqa: SLF001 - SQLAlchemy's own key of a statement's form
