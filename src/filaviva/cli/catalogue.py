"""`filaviva contracts link`: the page of contracts, for somebody without a key."""

from typing import Annotated

import typer

from filaviva.cli.links import show_link, signing
from filaviva.cli.moments import moment_after
from filaviva.cli.output import Json
from filaviva.operations.catalogue_links import CatalogueLinks


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
    secret, usual = signing()
    links = CatalogueLinks(secret, base_url=base_url or usual)
    show_link(links.make(types or None, expires=seconds), seconds, json=json)
