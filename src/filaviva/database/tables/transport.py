"""What comes and goes, who carries it, and who did what."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from filaviva.database.tables.schema import metadata

inbox = Table(
    "inbox",
    metadata,
    Column("consumer", Text, primary_key=True),
    Column("message_id", Text, primary_key=True),
    Column("body_hash", LargeBinary),
    Column("received_at", DateTime(timezone=True), nullable=False),
    Column("duplicates", Integer, nullable=False),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("exchange", Text, nullable=False),
    Column("routing_key", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("event_id", Text),
    Column("type", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    Column("job_id", Uuid),
    Column("epoch", BigInteger),
    Column("correlation_id", Text),
    Column("traceparent", Text),
    Column("priority", SmallInteger),
    Column("not_before", DateTime(timezone=True)),
    Column("mandatory", Boolean, nullable=False),
    Column("attributes", JSONB),
    Column("locked_until", DateTime(timezone=True), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("parked_at", DateTime(timezone=True)),
    Column("error", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("service", Text, nullable=False),
    Column("app", Text),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("queues", ARRAY(Text), nullable=False),
    Column("reads", JSONB, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("busy", Integer, nullable=False),
    Column("watermarks", JSONB, nullable=False),
    Column("started_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False),
    Column("stopped_at", DateTime(timezone=True)),
    Column("lately", JSONB, nullable=False),
    Column("release", Text),
    Column("draining_at", DateTime(timezone=True)),
)

counted = Table(
    "counted",
    metadata,
    Column("one", Boolean, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("counts", JSONB, nullable=False),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("author", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("tenant", Text),
    Column("target", Text),
    Column("data", JSONB, nullable=False),
)

contents = Table(
    "contents",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("sha256", LargeBinary, primary_key=True),
    Column("data", Text, nullable=False),
    Column("meaning", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("used_at", DateTime(timezone=True), nullable=False),
)

drills = Table(
    "drills",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("author", Text, nullable=False),
    Column("began_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True)),
    Column("passed", Boolean, nullable=False),
    Column("cut_seconds", Double, nullable=False),
    Column("report", JSONB),
)

processes = Table(
    "processes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("service", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("release", Text, nullable=False),
    Column("settings", JSONB, nullable=False),
    Column("measured", JSONB, nullable=False),
    Column("scraped_at", DateTime(timezone=True)),
    Column("scraped_by", Text),
    Column("started_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False),
    Column("stopped_at", DateTime(timezone=True)),
)
