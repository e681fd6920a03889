"""`filaviva outbox-table`: the table that a service puts its events into."""

import typer

from filaviva.service_outbox import DEFINITION

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("outbox-table")
def outbox_table() -> None:
    """Print the SQL of the table `filaviva_outbox`, for a service's own database.

    `filaviva outbox-table | psql "$SERVICE_DATABASE"`, or put it into the service's migrations.
    """
    typer.echo("\n".join(f"{statement.rstrip()};\n" for statement in DEFINITION))
