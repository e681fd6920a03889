"""The outbox of any service: events that leave with its own transaction, in its own database.

Before: an event and an open session. After: a row that shares the fate of the service's own writes;
`filaviva run relay` publishes it. What is too large for a message it first puts where the workers
find it. May happen twice: a row may be published again after a crash, with the same id, and every
handler knows what it has had.
"""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import uuid_utils
from sqlalchemy import BigInteger, Column, FetchedValue, Identity, Table, Text, cast, literal
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, registry

from filaviva import canonical, events, tracing
from filaviva import tracestate as tracestates
from filaviva.broker.topology import Topology
from filaviva.errors import Rejected
from filaviva.outbox import OutboxTable
from filaviva_contracts import Contract, wire_type

NAME: Final = "filaviva_outbox"
# As much as a job may have; beyond what a message carries it goes by reference.
LARGEST: Final = 256 * 1024

# What a message cannot carry is nothing for the relay (nor for one of an earlier release) until its
# content is put: the trigger hides it, whoever wrote the row. Attributes that are no object cannot
# name a content. PostgreSQL writes spaces that nobody sent: that is the room above LARGEST.
_SIZE: Final = """\
octet_length(data::text) <= 60000 OR (put_at IS NOT NULL AND octet_length(data::text) <= 600000)"""

# One statement after the other, each to be run as often as one likes.
DEFINITION: Final = (
    f"""\
CREATE TABLE IF NOT EXISTS filaviva_outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id        text NOT NULL DEFAULT gen_random_uuid()::text
                    CHECK (octet_length(event_id) BETWEEN 1 AND 200),
    source          text NOT NULL DEFAULT '/' || current_database(),
    type            text NOT NULL CHECK (type ~ '\\.v[1-9][0-9]*$' AND octet_length(type) <= 200),
    data            jsonb NOT NULL,
    attributes      jsonb NOT NULL DEFAULT '{{}}',  -- more of CloudEvents: subject, time
    correlation_id  text CHECK (octet_length(correlation_id) <= 200),
    traceparent     text,
    locked_until    timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries           integer NOT NULL DEFAULT 0,
    parked_at       timestamptz,
    error           text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    put_at          timestamptz,  -- when its data is put elsewhere; null: it is, or need not be
    CONSTRAINT filaviva_outbox_size CHECK ({_SIZE})
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)
""",
    "CREATE INDEX IF NOT EXISTS filaviva_outbox_due ON filaviva_outbox (locked_until)\n",
    # From here on: what a table of an earlier release lacks.
    "ALTER TABLE filaviva_outbox ADD COLUMN IF NOT EXISTS put_at timestamptz\n",
    f"""\
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'filaviva_outbox_size'
            AND conrelid = 'filaviva_outbox'::regclass) THEN
        ALTER TABLE filaviva_outbox DROP CONSTRAINT IF EXISTS filaviva_outbox_data_check,
            ADD CONSTRAINT filaviva_outbox_size CHECK ({_SIZE});
    END IF;
END $$
""",
    """\
CREATE INDEX IF NOT EXISTS filaviva_outbox_to_put ON filaviva_outbox (put_at)
WHERE put_at IS NOT NULL
""",
    """\
CREATE OR REPLACE FUNCTION filaviva_outbox_large() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.put_at := clock_timestamp();
    NEW.locked_until := 'infinity';
    RETURN NEW;
END $$
""",
    """\
CREATE OR REPLACE TRIGGER filaviva_outbox_large BEFORE INSERT ON filaviva_outbox FOR EACH ROW
WHEN (octet_length(NEW.data::text) > 60000 AND jsonb_typeof(NEW.attributes) = 'object')
EXECUTE FUNCTION filaviva_outbox_large()
""",
)

OF_A_SERVICE: Final = OutboxTable(
    NAME,
    f"""id, '{Topology().events}' AS exchange, type AS routing_key, event_id AS message_id,
    event_id, type, data::text AS data, NULL::uuid AS job_id, NULL::bigint AS epoch,
    correlation_id, traceparent, NULL::smallint AS priority, NULL::float8 AS pause_seconds,
    true AS mandatory, created_at, parked_at IS NOT NULL AS parked,
    (attributes || jsonb_build_object('source', source))::text AS attributes,
    attributes->>'tracestate' AS tracestate""",
)

_ROWS: Final = registry()
_TABLE: Final = Table(
    NAME,
    _ROWS.metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("source", Text, server_default=FetchedValue()),
    Column("type", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    Column("attributes", JSONB, nullable=False),
    Column("correlation_id", Text),
    Column("traceparent", Text),
)


class OutboxEvent:
    """A row of the outbox, as a session sees it."""

    def __init__(self, **columns: Any) -> None:
        for name, value in columns.items():
            setattr(self, name, value)


_ROWS.map_imperatively(OutboxEvent, _TABLE)


@dataclass(frozen=True, slots=True)
class Added:
    """An event that leaves when the session commits; it may be awaited, and waits for nothing."""

    id: str

    def __await__(self) -> Generator[Any, None, "Added"]:
        """Return at once."""
        yield from ()
        return self


class Outbox:
    """Events that leave when the session commits, and never if it does not."""

    def __init__(self, session: Session | AsyncSession, *, source: str | None = None) -> None:
        self._session = session
        self._source = source

    def add(  # noqa: PLR0913 - the attributes of an event
        self,
        event: Contract,
        *,
        id: str | UUID | None = None,  # noqa: A002 - CloudEvents' word
        subject: str | None = None,
        time: datetime | None = None,
        tenant: str | None = None,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Added:
        """Add an event to the session's transaction.

        Choose the `id` if the same fact may be added again (`invoice-17-issued`): for the handlers
        it is the same event then. The source is the database's name unless the outbox has one.
        """
        identity = str(id or uuid_utils.uuid7())
        columns: dict[str, Any] = {} if self._source is None else {"source": self._source}
        traceparent, tracestate = (
            (traceparent, tracestates.read(tracestate))
            if traceparent is not None
            else (tracing.carried(), tracing.carried_state())
        )
        more = {
            "subject": subject,
            events.TENANT: tenant,
            "time": _written(time),
            tracestates.NAME: tracestate,
        }
        row = OutboxEvent(
            event_id=identity,
            type=wire_type(event.contract_type, event.contract_version),
            data=_json(_storable(event)),
            attributes=_json(canonical.dumps({k: v for k, v in more.items() if v is not None})),
            correlation_id=correlation_id,
            traceparent=traceparent,
            **columns,
        )
        self._session.add(row)
        return Added(identity)


def _json(text: str) -> Any:
    # As text: the engine's own JSON writer may know neither Decimal nor exact numbers.
    return cast(literal(text, Text), JSONB)


def _storable(event: Contract) -> str:
    text = event.model_dump_json(by_alias=True)
    if len(text.encode()) > LARGEST:
        raise ValueError(
            f"{event.contract_type}: found {len(text.encode())} bytes, expected at most {LARGEST}: "
            "put large content elsewhere, and refer to it (filaviva.File)"
        )
    try:
        canonical.parse(text)
    except Rejected as unstorable:
        raise ValueError(f"{event.contract_type}: {unstorable.detail}") from None
    return text


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
