"""`filaviva jobs link`: a status page for an end user."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.cli import acting, here
from filaviva.cli.ids import identifier
from filaviva.cli.moments import moment_after
from filaviva.cli.output import Json, show_json
from filaviva.errors import ConfigurationError
from filaviva.operations import jobs
from filaviva.operations.figures import moment
from filaviva.operations.links import RIGHTS, Links
from filaviva.settings import FromEnvironment, LinksSettings, read


class _Settings(FromEnvironment):
    links: LinksSettings = Field(default=LinksSettings())


def link(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    *,
    expires: Annotated[str, typer.Option(help="For how long it is valid: 12h, 7d.")] = "7d",
    view_only: Annotated[
        bool, typer.Option("--view-only", help="Its reader may neither cancel nor repeat.")
    ] = False,
    base_url: Annotated[
        str, typer.Option(help="How end users reach the producer; default: the setting.")
    ] = "",
    json: Json = False,
) -> None:
    """Make a signed link to a job's status page; whoever has it needs no key."""
    wanted, until = identifier(job_id), moment_after(expires)
    settings = read(_Settings, here.environment()).links
    if settings.secret is None:
        raise ConfigurationError(
            "FILAVIVA_LINKS__SECRET: found nothing, expected the secret that the producer has"
        )
    links = Links(settings.secret.get_secret_value(), base_url=base_url or settings.base_url)

    async def exists(connection: AsyncConnection) -> None:
        await jobs.tenant_of(connection, wanted)

    acting.on_connection(exists)
    seconds = int(until.timestamp())
    made = links.make(wanted, () if view_only else RIGHTS, expires=seconds)
    if json:
        show_json({"url": made, "expiresAt": moment(datetime.fromtimestamp(seconds, UTC))})
    else:
        typer.echo(made)
