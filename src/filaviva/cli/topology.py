"""`filaviva topology`: compare the broker with what should be there, and bring it there."""

from typing import Annotated, Any, Final
from urllib.parse import unquote, urlsplit

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.broker import apply as applying
from filaviva.broker.drift import Drift
from filaviva.broker.drift import verify as read_back
from filaviva.broker.topology import Declarations, Topology
from filaviva.cli import acting
from filaviva.cli.exits import FAILED
from filaviva.cli.output import DryRun, Json, Yes, ask, show_json
from filaviva.errors import ConfigurationError
from filaviva.settings import Settings, read

app = typer.Typer(
    help="Compare the broker with what should be there.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

_QUEUES: Final = "SELECT DISTINCT queue FROM filaviva.contracts WHERE queue IS NOT NULL ORDER BY 1"
_NOTHING: Final = "nothing"

Queues = Annotated[
    list[str] | None, typer.Option("--queue", help="Also this handler queue; repeat for more.")
]


@app.command()
def plan(*, queue: Queues = None, json: Json = False) -> None:
    """Say what `apply` would declare, and what it could not change."""
    settings, declarations = read(Settings), _declarations(queue)
    _show(_drift(settings, declarations), json=json)


@app.command()
def verify(*, queue: Queues = None, json: Json = False) -> None:
    """Read everything back from the broker; exit code 1 if anything differs."""
    settings, declarations = read(Settings), _declarations(queue)
    drift = _drift(settings, declarations)
    _show(drift, json=json)
    if drift:
        raise typer.Exit(FAILED)


@app.command()
def apply(
    *, queue: Queues = None, dry_run: DryRun = False, yes: Yes = False, json: Json = False
) -> None:
    """Declare what is missing; what exists with other arguments is named and left alone."""
    settings, declarations = read(Settings), _declarations(queue)
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
    async def queues(engine: AsyncEngine) -> list[str]:
        async with engine.connect() as connection:
            return [row.queue for row in await connection.exec_driver_sql(_QUEUES)]

    return Topology().declarations(sorted({*acting.on_engine(queues), *(more or ())}))


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


def _shown(drift: Drift) -> dict[str, Any]:
    missing = drift.found == _NOTHING
    return {
        "action": "declare" if missing else "conflict",
        "kind": drift.kind,
        "name": drift.name,
        "found": drift.found,
        "expected": drift.expected,
        "difference": f"found {drift.found}, expected {drift.expected}",
    }
