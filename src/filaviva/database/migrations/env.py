"""Alembic's entry: runs on the connection that `filaviva.database.migrate` hands over."""

from alembic import context

from filaviva.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table="schema_version",
    version_table_schema="filaviva",
)
with context.begin_transaction():
    context.run_migrations()
