"""`filaviva topology`: compare the broker with what should be there, and bring it there."""

from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from filaviva.broker import apply as applying
from filaviva.broker.drift import NOTHING, Drift
from filaviva.broker.drift import verify as read_back
from filaviva.broker.topology import Declarations
from filaviva.cli import acting
from filaviva.cli.exits import FAILED
from filaviva.cli.here import environment
from filaviva.cli.output import DryRun, Json, Yes, ask, show_json
from filaviva.errors import ConfigurationError
from filaviva.operations.routes import routes
from filaviva.settings import Settings, read

app = typer.Typer(
    help="Compare the broker with what should be there.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)


Queues = Annotated[
    list[str] | None, typer.Option("--queue", help="Also this handler queue; repeat for more.")
]


@app.command()
def plan(*, queue: Queues = None, json: Json = False) -> None:
    """Say what `apply` would declare, and what it could not change."""
    settings, declarations = read(Settings, environment()), _declarations(queue)
    _show(_drift(settings, declarations), json=json)


@app.command()
def verify(*, queue: Queues = None, json: Json = False) -> None:
    """Read everything back from the broker; exit code 1 if anything differs."""
    settings, declarations = read(Settings, environment()), _declarations(queue)
    drift = _drift(settings, declarations)
    _show(drift, json=json)
    if drift:
        raise typer.Exit(FAILED)


@app.command()
def apply(
    *, queue: Queues = None, dry_run: DryRun = False, yes: Yes = False, json: Json = False
) -> None:
    """Declare what is missing; what exists with other arguments is named and left alone."""
    settings, declarations = read(Settings, environment()), _declarations(queue)
    if dry_run:
        _show(_drift(settings, declarations), json=json)
        return
    names = f"{len(declarations.exchanges)} exchanges and {len(declarations.queues)} queues"
    ask(f"Declare {names} on the broker where they are missing?", yes=yes)
    acting.run(applying.apply(settings.broker.url.get_secret_value(), declarations))
    if json:
        show_json({"exchanges": len(declarations.exchanges), "queues": len(declarations.queues)})
    else:
        typer.echo(f"declared: {names}")


def _declarations(more: list[str] | None) -> Declarations:
    known = acting.on_connection(routes)
    return replace(known, queues=known.queues.union(more or ())).declarations()


def _drift(settings: Settings, declarations: Declarations) -> list[Drift]:
    management = settings.broker.management_url
    if management is None:
        raise ConfigurationError(
            "FILAVIVA_BROKER__MANAGEMENT_URL: found nothing, expected "
            "http://user:password@host:15672: what is on the broker is read from there"
        )
    vhost = unquote(urlsplit(settings.broker.url.get_secret_value()).path[1:]) or "/"
    return acting.run(read_back(management.get_secret_value(), vhost, declarations))


def _show(drift: list[Drift], *, json: bool) -> None:
    items = [_shown(one) for one in drift]
    if json:
        show_json({"items": items, "next": None})
        return
    for item in items:
        typer.echo(f"{item['action']:<8}  {item['kind']} {item['name']}: {item['difference']}")
    if not items:
        typer.echo("the broker is as it should be")


def _action(drift: Drift) -> str:
    if drift.found == NOTHING:
        return "declare"
    return "stale" if drift.expected == NOTHING else "conflict"


def _shown(drift: Drift) -> dict[str, Any]:
    return {
        "action": _action(drift),
        "kind": drift.kind,
        "name": drift.name,
        "found": drift.found,
        "expected": drift.expected,
        "difference": f"found {drift.found}, expected {drift.expected}",
    }
