"""Publish an app's contracts: what its handlers accept, return and allow.

Before: the app is loaded and its handlers fit together.
After:  its rows in `contracts` are as the code says; rows without a handler are deprecated.
May happen twice: the second time changes nothing and notifies nobody.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.app import App
from filaviva.errors import ConfigurationError
from filaviva.handler import Handler
from filaviva.registry import CHANNEL
from filaviva.schemas import SchemaCheck, schema_of
from filaviva_contracts import Contract
from filaviva_contracts.names import event_of

# Two setups at once, of two apps with the same type, must not both find it free.
_LOCK: Final = "LOCK TABLE filaviva.contracts IN SHARE ROW EXCLUSIVE MODE"

_TAKEN: Final = """
SELECT known.type, known.version, known.app
FROM filaviva.contracts AS known
JOIN unnest($1::text[], $2::int[], $4::text[]) AS wanted (type, version, queue)
    USING (type, version)
WHERE known.app <> $3 AND known.deprecated_at IS NULL AND known.queue IS NOT NULL
    AND wanted.queue IS NOT NULL
ORDER BY 1, 2
"""

# What is an event to us may be a job to its owner, or an event of several apps: the first app's row
# stays. A handler of events that moves takes its inbox along, into its later versions too: what it
# has had it would have again otherwise.
_UPSERT: Final = """
INSERT INTO filaviva.contracts AS known
    (type, version, app, queue, schema, result_schema, policy, event, read_as, sunset, announced_at,
     examples, inbox_queue)
SELECT wanted.type, wanted.version, $3, wanted.queue,
       wanted.schema::jsonb, wanted.result_schema::jsonb, wanted.policy::jsonb, wanted.event,
       wanted.read_as, wanted.sunset,
       CASE WHEN wanted.sunset IS NOT NULL THEN clock_timestamp() END, wanted.examples::jsonb,
       (SELECT coalesce(first.inbox_queue, first.queue) FROM filaviva.contracts AS first
        WHERE first.type = wanted.type AND first.event IS NOT NULL ORDER BY first.version LIMIT 1)
FROM unnest($1::text[], $2::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::int[], $10::date[], $11::text[])
    AS wanted (type, version, queue, schema, result_schema, policy, event, read_as, sunset,
        examples)
ON CONFLICT (type, version) DO UPDATE SET
    app = excluded.app, queue = excluded.queue, schema = excluded.schema,
    result_schema = excluded.result_schema, policy = excluded.policy, event = excluded.event,
    read_as = excluded.read_as, sunset = excluded.sunset,
    announced_at = CASE WHEN excluded.sunset IS NOT NULL
        THEN coalesce(known.announced_at, excluded.announced_at) END,
    examples = excluded.examples,
    inbox_queue = CASE WHEN known.event IS NOT NULL
        THEN coalesce(known.inbox_queue, known.queue) END,
    deprecated_at = NULL, updated_at = clock_timestamp()
WHERE (excluded.queue IS NOT NULL OR known.app = excluded.app OR known.deprecated_at IS NOT NULL)
    AND (known.app, known.queue, known.schema, known.result_schema, known.policy, known.event,
       known.read_as, known.sunset, known.examples, known.deprecated_at)
    IS DISTINCT FROM (excluded.app, excluded.queue, excluded.schema, excluded.result_schema,
       excluded.policy, excluded.event, excluded.read_as, excluded.sunset, excluded.examples,
       NULL::timestamptz)
RETURNING known.type, known.version, (known.xmax = 0) AS added
"""

# What was published of a version when it still had a handler.
_KNOWN: Final = """
SELECT type, version, schema::text, examples::text FROM filaviva.contracts
WHERE (type, version) IN (SELECT * FROM unnest($1::text[], $2::int[]))
"""

_DEPRECATE: Final = """
UPDATE filaviva.contracts AS known SET deprecated_at = clock_timestamp()
WHERE known.app = $3 AND known.deprecated_at IS NULL
    AND NOT EXISTS (SELECT FROM unnest($1::text[], $2::int[]) AS wanted (type, version)
                    WHERE wanted.type = known.type AND wanted.version = known.version)
    AND NOT (known.queue IS NULL AND EXISTS (
        SELECT FROM filaviva.contracts AS other
        WHERE other.event = known.type AND other.version = known.version
            AND other.app <> known.app AND other.deprecated_at IS NULL))
RETURNING known.type, known.version
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One version of a contract, in the order of the columns of `_UPSERT`."""

    type: str
    version: int
    queue: str | None = None
    schema: str
    result_schema: str | None = None
    policy: str = "{}"
    event: str | None = None
    read_as: int | None = None
    sunset: date | None = None
    examples: str = "[]"


@dataclass(frozen=True, slots=True)
class Published:
    """What publishing changed, as "type vN"; `unknown` is read, but its schema is not known."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


async def publish(connection: AsyncConnection, app: App) -> Published:
    """Make the app's rows what its code says; another app's contract is a ConfigurationError."""
    app.check()
    await connection.exec_driver_sql(_LOCK)
    rows, unknown = await _rows(connection, app)
    types, versions, *rest = _columns(rows)
    taken = await connection.exec_driver_sql(_TAKEN, (types, versions, app.name, rest[0]))
    _refuse_taken(app, [tuple(row) for row in taken])
    written = await connection.exec_driver_sql(_UPSERT, (types, versions, app.name, *rest))
    touched = [(f"{row.type} v{row.version}", row.added) for row in written]
    gone = await connection.exec_driver_sql(_DEPRECATE, (types, versions, app.name))
    published = Published(
        added=tuple(sorted(name for name, added in touched if added)),
        changed=tuple(sorted(name for name, added in touched if not added)),
        deprecated=tuple(sorted(f"{row.type} v{row.version}" for row in gone)),
        unknown=unknown,
    )
    if replace(published, unknown=()) != Published():
        await connection.exec_driver_sql("SELECT pg_notify($1, $2)", (CHANNEL, app.name))
    return published


def _columns(rows: list[_Row]) -> list[list[Any]]:
    return [[getattr(row, each.name) for row in rows] for each in fields(_Row)]


async def _rows(connection: AsyncConnection, app: App) -> tuple[list[_Row], tuple[str, ...]]:
    """Give what is to be published, and name what cannot be: nobody here knows its schema."""
    own = [*map(_row, app.all_handlers()), *_event_rows(app)]
    old = _upcast(app, own)
    known = await _schemas(connection, app, old)
    rows = own + [
        replace(row, schema=known[key][0], examples=known[key][1])
        for row in old
        if (key := (row.type, row.version)) in known
    ]
    unknown = [f"{row.type} v{row.version}" for row in old if (row.type, row.version) not in known]
    dated = [
        replace(row, sunset=app.sunsets.get((event_of(row.type), row.version))) for row in rows
    ]
    return dated, tuple(unknown)


def _upcast(app: App, rows: Sequence[_Row]) -> list[_Row]:
    """Give a row for each old version that is upcast: all but the schema is its reader's."""
    own = {(row.type, row.version): row for row in rows}
    old = [
        replace(row, version=version, read_as=row.version, examples="[]")
        for kind, versions in app.reads().items()
        for version in versions
        if (handler := app.find(kind, version)) is not None and handler.upcasters
        for row in [own[kind, handler.version]]
    ]
    events = {
        (row.event, row.version): _Row(
            type=row.event, version=row.version, schema="", read_as=row.read_as
        )
        for row in old
        if row.event is not None and (row.event, row.version) not in own
    }
    named = {(row.type, row.version) for row in old}
    return old + [row for key, row in sorted(events.items()) if key not in named]


async def _schemas(
    connection: AsyncConnection, app: App, rows: Sequence[_Row]
) -> dict[tuple[str, int], tuple[str, str]]:
    """Find the schema and examples of old versions: in the app, or as they were published."""
    wanted = {(row.type, row.version) for row in rows}
    wanted |= {(event_of(kind), version) for kind, version in wanted}
    ordered = sorted(wanted)
    arguments = ([kind for kind, _ in ordered], [version for _, version in ordered])
    found = {
        (row.type, row.version): (row.schema, row.examples)
        for row in await connection.exec_driver_sql(_KNOWN, arguments)
    }
    for key, contract in app.old_contracts.items():
        found[key] = _described(contract)
    return {
        key: found.get((event_of(key[0]), key[1])) or found[key]
        for key in wanted
        if key in found or (event_of(key[0]), key[1]) in found
    }


def _described(contract: type[Contract]) -> tuple[str, str]:
    """Give a contract's schema, which must compile or every producer would refuse it; examples."""
    schema = schema_of(contract)
    SchemaCheck(schema)
    return json.dumps(schema), json.dumps(schema.get("examples", []))


def _refuse_taken(app: App, taken: list[tuple[Any, ...]]) -> None:
    if taken:
        found = ", ".join(f"{kind} v{version} (of app {owner!r})" for kind, version, owner in taken)
        raise ConfigurationError(
            f"app {app.name!r} publishes what another app has: {found}. Expected types of its own; "
            "to move one, take its handler out of the other app and run that app's setup first"
        )


def _event_rows(app: App) -> list[_Row]:
    """Give the contracts of the events themselves, where they are no job types of this app too."""
    events = {
        **app.published,
        **{
            (handler.event, handler.version): handler.contract
            for handler in app.all_handlers()
            if handler.event is not None
        },
    }
    return [
        _Row(type=kind, version=version, schema=schema, examples=examples)
        for (kind, version), contract in sorted(events.items())
        if version not in app.handlers.get(kind, {})
        for schema, examples in [_described(contract)]
    ]


def _row(handler: Handler) -> _Row:
    schema, examples = _described(handler.contract)
    returned = handler.returns.schema
    if returned is not None:
        SchemaCheck(returned)
    return _Row(
        type=handler.job_type,
        version=handler.version,
        queue=handler.queue,
        schema=schema,
        result_schema=None if returned is None else json.dumps(returned),
        policy=json.dumps(handler.policy.stored()),
        event=handler.event,
        examples=examples,
    )
