"""`filaviva topology`: compare the broker with what should be there, and bring it there."""

from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from filaviva.broker import apply as applying
from filaviva.broker import drift
from filaviva.broker.drift import NOTHING, Drift, Present
from filaviva.broker.topology import Declarations
from filaviva.cli import acting
from filaviva.cli.choices import queue_names
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
    list[str] | None,
    typer.Option("--queue", callback=queue_names, help="Also this handler queue; repeat for more."),
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
    found = _drift(settings, declarations)
    _show(found, json=json)
    if found:
        raise typer.Exit(FAILED)


@app.command()
def apply(
    *, queue: Queues = None, dry_run: DryRun = False, yes: Yes = False, json: Json = False
) -> None:
    """Declare what is missing, remove bindings that are stale (with a management URL).

    What exists with other arguments is named and left alone.
    """
    settings, declarations = read(Settings, environment()), _declarations(queue)
    if dry_run:
        _show(_drift(settings, declarations), json=json)
        return
    declarations = _without_stale(settings, declarations)
    names = f"{len(declarations.exchanges)} exchanges and {len(declarations.queues)} queues"
    gone = f", remove {len(declarations.gone)} stale bindings" if declarations.gone else ""
    ask(f"Declare {names} on the broker where they are missing{gone}?", yes=yes)
    acting.run(applying.apply(settings.broker.url.get_secret_value(), declarations))
    if json:
        counted = ("exchanges", "queues", "gone")
        show_json({name: len(getattr(declarations, name)) for name in counted})
    else:
        typer.echo(f"declared: {names}{gone.replace('remove', 'removed')}")


def _declarations(more: list[str] | None) -> Declarations:
    known = acting.on_connection(routes)
    return replace(known, queues=known.queues.union(more or ())).declarations()


def _without_stale(settings: Settings, declarations: Declarations) -> Declarations:
    """Add what is on the broker and stale to what has to go; who cannot look removes less."""
    if settings.broker.management_url is None:
        return declarations
    found = drift.stale(_present(settings), declarations)
    return replace(declarations, gone=tuple(dict.fromkeys((*declarations.gone, *found))))


def _drift(settings: Settings, declarations: Declarations) -> list[Drift]:
    return drift.compare(_present(settings), declarations)


def _present(settings: Settings) -> Present:
    management = settings.broker.management_url
    if management is None:
        raise ConfigurationError(
            "FILAVIVA_BROKER__MANAGEMENT_URL: found nothing, expected "
            "http://user:password@host:15672: what is on the broker is read from there"
        )
    vhost = unquote(urlsplit(settings.broker.url.get_secret_value()).path[1:]) or "/"
    return acting.run(drift.read_back(management.get_secret_value(), vhost))


def _show(found: list[Drift], *, json: bool) -> None:
    items = [_shown(one) for one in found]
    if json:
        show_json({"items": items, "next": None})
        return
    for item in items:
        typer.echo(f"{item['action']:<8}  {item['kind']} {item['name']}: {item['difference']}")
    if not items:
        typer.echo("the broker is as it should be")


def _action(one: Drift) -> str:
    if one.found == NOTHING:
        return "declare"
    return "stale" if one.expected == NOTHING else "conflict"


def _shown(one: Drift) -> dict[str, Any]:
    return {
        "action": _action(one),
        "kind": one.kind,
        "name": one.name,
        "found": one.found,
        "expected": one.expected,
        "difference": f"found {one.found}, expected {one.expected}",
    }
