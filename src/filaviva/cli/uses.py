"""`filaviva contracts uses`: who still sends which version."""

from typing import Annotated

import typer

from filaviva.cli import acting
from filaviva.cli.output import Json, show_json, show_list
from filaviva.operations.contract_uses import uses as find

_COLUMNS = ("type", "version", "source", "uses", "lastAt")


def uses(
    job_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="Default: every type.")
    ] = None,
    *,
    version: Annotated[int | None, typer.Option(help="Default: every version.")] = None,
    days: Annotated[int, typer.Option(min=1, max=400, help="How far to look back.")] = 30,
    json: Json = False,
) -> None:
    """Say who has sent which version lately.

    API keys by their id, events by their source, schedules and people at the command line by name.
    """
    items = acting.on_connection(
        lambda connection: find(connection, kind=job_type, version=version, days=days)
    )
    if json:
        show_json({"items": items, "next": None})
    else:
        show_list(items, _COLUMNS)
