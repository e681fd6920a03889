"""`filaviva limits`: what a tenant, or each of its end users, may have."""

from typing import Annotated

import typer

from filaviva.cli import acting
from filaviva.cli.output import DryRun, Json, Yes, ask, show_json, show_list
from filaviva.errors import NotFound
from filaviva.limits import WHOLE
from filaviva.operations import limits
from filaviva.operations.figures import moment

_COLUMNS = ("tenant", "subject", "perMinute", "burst", "queued", "running", "updatedAt")

app = typer.Typer(
    help="Set, list and remove limits of tenants and of their end users.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Tenant = Annotated[str, typer.Option(help="The tenant; '*' is every tenant.")]
Subject = Annotated[
    str, typer.Option(help="One end user; '*' is each of them. Without it: the whole tenant.")
]


@app.command("set")
def set_limit(  # noqa: PLR0913 - the figures of a limit
    *,
    tenant: Tenant,
    subject: Subject = WHOLE,
    per_minute: Annotated[float | None, typer.Option(help="Submissions a minute.")] = None,
    burst: Annotated[int | None, typer.Option(help="Of them at once. Default: a minute's.")] = None,
    queued: Annotated[int | None, typer.Option(help="Jobs that wait.")] = None,
    running: Annotated[int | None, typer.Option(help="Jobs that run at the same time.")] = None,
) -> None:
    """Set a limit; figures that are not given stay as they are."""
    figures = limits.Figures(per_minute, burst, queued, running)
    acting.on_connection(
        lambda connection: limits.put(connection, tenant, subject, figures, author=acting.author())
    )
    typer.echo(f"set for {limits.place(tenant, subject)}")


@app.command("list")
def list_limits(
    *, tenant: Annotated[str | None, typer.Option(help="One tenant's.")] = None, json: Json = False
) -> None:
    """List limits; what is not listed is not limited."""
    found = acting.on_connection(lambda connection: limits.rows(connection, tenant=tenant))
    items = [_shown(row) for row in found]
    if json:
        show_json({"items": items, "next": None})
    else:
        show_list(items, _COLUMNS)


@app.command()
def remove(
    *, tenant: Tenant, subject: Subject = WHOLE, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Remove a limit with all its figures."""
    known = acting.on_connection(lambda connection: limits.rows(connection, tenant=tenant))
    whom = limits.place(tenant, subject)
    if subject not in {row.subject for row in known}:
        raise NotFound(f"there is no limit for {whom}")
    if dry_run:
        typer.echo(f"would remove the limit of {whom}")
        return
    ask(f"Remove the limit of {whom}?", yes=yes)
    acting.on_connection(
        lambda connection: limits.remove(connection, tenant, subject, author=acting.author())
    )
    typer.echo(f"removed for {whom}")


def _shown(row: limits.Row) -> dict[str, object]:
    return {
        "tenant": row.tenant,
        "subject": row.subject,
        "perMinute": row.per_minute,
        "burst": row.burst,
        "queued": row.queued,
        "running": row.running,
        "updatedAt": moment(row.updated_at),
    }
