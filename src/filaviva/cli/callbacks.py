"""`filaviva callbacks`: what receivers verify callbacks with."""

from typing import Annotated

import typer

from filaviva.callbacks.serving import secrets
from filaviva.cli import here
from filaviva.cli.choices import tenant_name
from filaviva.cli.output import Json, show_json
from filaviva.cli.submitting import CallbackEnvironment
from filaviva.errors import ConfigurationError
from filaviva.settings import read

app = typer.Typer(
    help="Show what receivers verify callbacks with.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Keep `secret` a command of its own, though there is one only."""


@app.command()
def secret(
    *,
    tenant: Annotated[str, typer.Option(help="Whose receivers.", callback=tenant_name)] = "default",
    json: Json = False,
) -> None:
    """Print the secret that a tenant's receivers verify with; two while they change to a new one.

    It is derived from FILAVIVA_CALLBACKS__SECRET, which the services must have too.
    """
    found = secrets(read(CallbackEnvironment, here.environment()).callbacks, tenant)
    if not found:
        message = "FILAVIVA_CALLBACKS__SECRET: found nothing, expected 32 characters or more"
        raise ConfigurationError(message)
    if json:
        show_json({"tenant": tenant, "secrets": found})
        return
    for each in found:
        typer.echo(each)
