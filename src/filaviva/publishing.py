"""Publish an app's contracts: what its handlers accept, return and allow.

Before: the app is loaded and its handlers fit together.
After:  its rows in `contracts` are as the code says; rows without a handler are deprecated.
May happen twice: the second time changes nothing and notifies nobody.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.app import App
from filaviva.errors import ConfigurationError
from filaviva.handler import Handler
from filaviva.registry import CHANNEL
from filaviva.schemas import SchemaCheck

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
# stays.
_UPSERT: Final = """
INSERT INTO filaviva.contracts AS known
    (type, version, app, queue, schema, result_schema, policy, event)
SELECT wanted.type, wanted.version, $3, wanted.queue,
       wanted.schema::jsonb, wanted.result_schema::jsonb, wanted.policy::jsonb, wanted.event
FROM unnest($1::text[], $2::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    AS wanted (type, version, queue, schema, result_schema, policy, event)
ON CONFLICT (type, version) DO UPDATE SET
    app = excluded.app, queue = excluded.queue, schema = excluded.schema,
    result_schema = excluded.result_schema, policy = excluded.policy, event = excluded.event,
    deprecated_at = NULL, updated_at = clock_timestamp()
WHERE (excluded.queue IS NOT NULL OR known.app = excluded.app OR known.deprecated_at IS NOT NULL)
    AND (known.app, known.queue, known.schema, known.result_schema, known.policy, known.event,
       known.deprecated_at)
    IS DISTINCT FROM (excluded.app, excluded.queue, excluded.schema, excluded.result_schema,
       excluded.policy, excluded.event, NULL::timestamptz)
RETURNING known.type, known.version, (known.xmax = 0) AS added
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


# type, version, queue, schema, result schema, policy, event
_Row: TypeAlias = tuple[str, int, str | None, str, str | None, str, str | None]


@dataclass(frozen=True, slots=True)
class Published:
    """What publishing changed, as "type vN"."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()


async def publish(connection: AsyncConnection, app: App) -> Published:
    """Make the app's rows what its code says; another app's contract is a ConfigurationError."""
    rows = [*map(_row, app.all_handlers()), *_event_rows(app)]
    types, versions, queues, schemas, results, policies, events = (
        [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 7
    )
    await connection.exec_driver_sql(_LOCK)
    taken = await connection.exec_driver_sql(_TAKEN, (types, versions, app.name, queues))
    _refuse_taken(app, [tuple(row) for row in taken])
    written = await connection.exec_driver_sql(
        _UPSERT, (types, versions, app.name, queues, schemas, results, policies, events)
    )
    touched = [(f"{row.type} v{row.version}", row.added) for row in written]
    gone = await connection.exec_driver_sql(_DEPRECATE, (types, versions, app.name))
    published = Published(
        added=tuple(sorted(name for name, added in touched if added)),
        changed=tuple(sorted(name for name, added in touched if not added)),
        deprecated=tuple(sorted(f"{row.type} v{row.version}" for row in gone)),
    )
    if published != Published():
        await connection.exec_driver_sql("SELECT pg_notify($1, $2)", (CHANNEL, app.name))
    return published


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
        (handler.event, handler.version): handler.contract
        for handler in app.all_handlers()
        if handler.event is not None and app.find(handler.event, handler.version) is None
    }
    return [
        (kind, version, None, json.dumps(contract.json_schema()), None, "{}", None)
        for (kind, version), contract in sorted(events.items())
    ]


def _row(handler: Handler) -> _Row:
    schema, returned = handler.contract.json_schema(), handler.returns.schema
    for each in filter(None, (schema, returned)):
        SchemaCheck(each)  # what cannot be compiled would stop every producer from accepting it
    return (
        handler.job_type,
        handler.version,
        handler.queue,
        json.dumps(schema),
        None if returned is None else json.dumps(returned),
        json.dumps(handler.policy.stored()),
        handler.event,
    )
