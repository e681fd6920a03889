"""The tables as Python knows them are the tables that the migrations make."""

import re
from typing import Any

from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database import tables
from filaviva.database.fetch import fetch

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL), NOT a.attnotnull,
       a.attidentity <> ''
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE c.relnamespace = 'filaviva'::regnamespace AND c.relkind = 'r'
  AND a.attnum > 0 AND NOT a.attisdropped AND c.relname <> 'schema_version'
"""
_KEYS = """
SELECT c.relname, array_agg(a.attname ORDER BY array_position(i.indkey::int2[], a.attnum))
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
WHERE i.indisprimary AND c.relnamespace = 'filaviva'::regnamespace
  AND c.relname <> 'schema_version'
GROUP BY 1
"""
_SAME = {  # SQLAlchemy's words and PostgreSQL's
    "float": "double precision",
    "int": "integer",
}


def known() -> dict[str, Any]:
    return {table.name: table for table in tables.metadata.sorted_tables}


async def read(engine: AsyncEngine, statement: str) -> list[Any]:
    async with engine.connect() as connection:
        return list(await fetch(connection, statement))


async def test_every_column_has_its_type_and_says_whether_it_may_be_empty(
    engine: AsyncEngine,
) -> None:
    there = {(row[0], row[1]): (row[2], row[3]) for row in await read(engine, _COLUMNS)}
    here = {
        (table.name, column.name): (_type(column), bool(column.nullable))
        for table in known().values()
        for column in table.columns
    }

    assert here == there


async def test_every_table_has_its_primary_key(engine: AsyncEngine) -> None:
    there = {row[0]: list(row[1]) for row in await read(engine, _KEYS)}

    assert {
        name: [column.name for column in table.primary_key] for name, table in known().items()
    } == there


def _type(column: Any) -> str:
    name = column.type.compile(dialect=postgresql.dialect()).lower()
    name = re.sub(r"\(.*\)", "", name)
    return _SAME.get(name, name)
