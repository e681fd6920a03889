"""`filaviva contracts link`: the page of contracts, for somebody without a key."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from pydantic import Field

from filaviva.cli import here
from filaviva.cli.moments import moment_after
from filaviva.cli.output import Json, show_json
from filaviva.errors import ConfigurationError
from filaviva.operations.catalogue_links import CatalogueLinks
from filaviva.operations.figures import moment
from filaviva.settings import FromEnvironment, LinksSettings, read


class _Settings(FromEnvironment):
    links: LinksSettings = Field(default=LinksSettings())


def link(
    *,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Show this type alone; may be repeated. Default: every type."),
    ] = None,
    expires: Annotated[str, typer.Option(help="For how long it is valid: 12h, 7d.")] = "30d",
    base_url: Annotated[
        str, typer.Option(help="How its readers reach the producer; default: the setting.")
    ] = "",
    json: Json = False,
) -> None:
    """Make a signed link to the page of contracts; whoever has it needs no key."""
    seconds = int(moment_after(expires).timestamp())
    settings = read(_Settings, here.environment()).links
    if settings.secret is None:
        raise ConfigurationError(
            "FILAVIVA_LINKS__SECRET: found nothing, expected the secret that the producer has"
        )
    secret = settings.secret.get_secret_value()
    links = CatalogueLinks(secret, base_url=base_url or settings.base_url)
    made = links.make(types or None, expires=seconds)
    if json:
        show_json({"url": made, "expiresAt": moment(datetime.fromtimestamp(seconds, UTC))})
    else:
        typer.echo(made)
