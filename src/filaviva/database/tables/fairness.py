"""Who may have how much, and whose turn it is."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Integer,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY

from filaviva.database.tables.schema import metadata

limits = Table(
    "limits",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("per_minute", Double),
    Column("burst", Integer),
    Column("queued", Integer),
    Column("running", Integer),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)

submission_keys = Table(
    "submission_keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("tokens", Double, nullable=False),
    Column("filled_at", DateTime(timezone=True), nullable=False),
)

running_keys = Table(
    "running_keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("released", ARRAY(Uuid), nullable=False),
    Column("epochs", ARRAY(BigInteger), nullable=False),
)

turns = Table(
    "turns",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("tenant", Text, primary_key=True),
    Column("priority", SmallInteger, primary_key=True),
    Column("job_id", Uuid, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)

upcoming = Table(
    "upcoming",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("due_at", DateTime(timezone=True), nullable=False),
)

turn_keeper = Table(
    "turn_keeper",
    metadata,
    Column("one", Boolean, primary_key=True),
    Column("id", Text, nullable=False),
    Column("until", DateTime(timezone=True), nullable=False),
)
