"""What a person has to look at, and how it goes back."""

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    Numeric,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from filaviva.database.tables.schema import metadata

failure_groups = Table(
    "failure_groups",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("type", Text),
    Column("reason", Text, nullable=False),
    Column("error_class", Text),
    Column("error_code", Text),
    Column("message", Text, nullable=False),
    Column("frames", ARRAY(Text), nullable=False),
    Column("state", Text, nullable=False),
    Column("episode", Integer, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("cost_usd", Numeric, nullable=False),
    Column("first_seen_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False),
    Column("snoozed_until", DateTime(timezone=True)),
    Column("resolved_at", DateTime(timezone=True)),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("job_id", Uuid),
    Column("epoch", BigInteger),
    Column("tenant", Text),
    Column("type", Text),
    Column("version", Integer),
    Column("reason", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("group_id", Uuid, nullable=False),
    Column("error", JSONB, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("cost_usd", Numeric, nullable=False),
    Column("message_id", Text),
    Column("source_queue", Text),
    Column("exchange", Text),
    Column("routing_key", Text),
    Column("content_type", Text),
    Column("headers", JSONB, nullable=False),
    Column("raw", LargeBinary),
    Column("replay_id", Uuid),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("closed_at", DateTime(timezone=True)),
)

replays = Table(
    "replays",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("scope", JSONB, nullable=False),
    Column("patch", JSONB),
    Column("rate_per_second", Double),
    Column("canary", Integer),
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("finished_at", DateTime(timezone=True)),
)

replay_letters = Table(
    "replay_letters",
    metadata,
    Column("replay_id", Uuid, primary_key=True),
    Column("dead_letter_id", Uuid, primary_key=True),
    Column("job_id", Uuid),
    Column("epoch", BigInteger),
    Column("state", Text, nullable=False),
    Column("cost_before", Numeric, nullable=False),
    Column("estimated_usd", Numeric, nullable=False),
    Column("outcome", Text),
    Column("cost_usd", Numeric),
    Column("error", Text),
    Column("sent_at", DateTime(timezone=True)),
    Column("held_until", DateTime(timezone=True)),
    Column("closed_at", DateTime(timezone=True)),
)

notifications = Table(
    "notifications",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("group_id", Uuid),
    Column("episode", Integer),
    Column("kind", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("text", Text),
    Column("state", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_try_at", DateTime(timezone=True), nullable=False),
    Column("error", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("sent_at", DateTime(timezone=True)),
)

notification_channels = Table(
    "notification_channels",
    metadata,
    Column("name", Text, primary_key=True),
    Column("open_at", DateTime(timezone=True), nullable=False),
    Column("failures", Integer, nullable=False),
    Column("error", Text),
)
