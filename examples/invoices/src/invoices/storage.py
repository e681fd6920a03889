"""The user's own table: one row for each extracted document."""

from typing import Any

from sqlalchemy import Column, DateTime, Index, MetaData, Numeric, Table, Text, func
from sqlalchemy.dialects.postgresql import JSONB, Insert, insert

from invoices.models import Invoice

# In a schema of its own beside Filaviva's: `filaviva setup` creates what is missing.
tables = MetaData(schema="invoices")

documents = Table(
    "documents",
    tables,
    # The effect's key is the primary key: storing the same job's document twice is impossible.
    Column("key", Text, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("document_url", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("access_key", Text, nullable=False),
    Column("issuer", Text, nullable=False),
    Column("total", Numeric(17, 2), nullable=False),
    Column("invoice", JSONB, nullable=False),
    Column("stored_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index("documents_access_key", "access_key"),
)


def store(invoice: Invoice, *, key: str, job_id: str, document_url: str) -> Insert:
    """Return the statement that stores the invoice once: again under the same key is nothing."""
    row: dict[str, Any] = {
        "key": key,
        "job_id": job_id,
        "document_url": document_url,
        "kind": invoice.kind,
        "access_key": invoice.access_key,
        "issuer": invoice.issuer.name,
        "total": invoice.totals.total,
        "invoice": invoice.model_dump(mode="json"),
    }
    return insert(documents).values(row).on_conflict_do_nothing(index_elements=["key"])
