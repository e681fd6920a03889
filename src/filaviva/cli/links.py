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
    secret, usual = signing()
    links = Links(secret, base_url=base_url or usual)

    async def exists(connection: AsyncConnection) -> None:
        await jobs.tenant_of(connection, wanted)

    acting.on_connection(exists)
    seconds = int(until.timestamp())
    made = links.make(wanted, () if view_only else RIGHTS, expires=seconds)
    show_link(made, seconds, json=json)


def signing() -> tuple[str, str]:
    """Give the secret that signs links, and how people reach the producer."""
    settings = read(_Settings, here.environment()).links
    if settings.secret is None:
        raise ConfigurationError(
            "FILAVIVA_LINKS__SECRET: found nothing, expected the secret that the producer has"
        )
    return settings.secret.get_secret_value(), settings.base_url


def show_link(url: str, expires: int, *, json: bool) -> None:
    """Print a link, or with the moment (Unix time) until which it is valid."""
    if json:
        show_json({"url": url, "expiresAt": moment(datetime.fromtimestamp(expires, UTC))})
    else:
        typer.echo(url)
