"""Who may ask, and for what: keys, contracts, what is submitted by the calendar."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from filaviva.database.tables.schema import metadata

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("types", ARRAY(Text)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("last_used_at", DateTime(timezone=True)),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
)

contracts = Table(
    "contracts",
    metadata,
    Column("type", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("app", Text, nullable=False),
    Column("queue", Text),
    Column("schema", JSONB, nullable=False),
    Column("result_schema", JSONB),
    Column("policy", JSONB, nullable=False),
    Column("event", Text),
    Column("deprecated_at", DateTime(timezone=True)),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("read_as", Integer),
    Column("sunset", Date),
    Column("announced_at", DateTime(timezone=True)),
    Column("examples", JSONB, nullable=False),
    Column("inbox_queue", Text),
)

contract_samples = Table(
    "contract_samples",
    metadata,
    Column("type", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("hash", LargeBinary, primary_key=True),
    Column("outline", JSONB, nullable=False),
    Column("seen", BigInteger, nullable=False),
    Column("first_seen_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False),
)

contract_uses = Table(
    "contract_uses",
    metadata,
    Column("type", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("uses", BigInteger, nullable=False),
    Column("last_at", DateTime(timezone=True), nullable=False),
)

schedules = Table(
    "schedules",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("cron", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("missed", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("type", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("data", JSONB, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("max_attempts", Integer),
    Column("labels", JSONB, nullable=False),
    Column("subject", Text),
    Column("callback_url", Text),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("next_fire_at", DateTime(timezone=True)),
    Column("last_fired_at", DateTime(timezone=True)),
    Column("last_job_id", Uuid),
    Column("fired", BigInteger, nullable=False),
    Column("error", Text),
    Column("submitted_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("items", JSONB),
    Column("batch", JSONB),
    Column("overlap", Text, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    Column("last_skipped_at", DateTime(timezone=True)),
    Column("waiting", ARRAY(DateTime(timezone=True)), nullable=False),
    Column("look_again_at", DateTime(timezone=True)),
)
