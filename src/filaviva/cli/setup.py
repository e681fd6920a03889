"""`filaviva setup`: the one-shot step before services start."""

from pathlib import Path
from typing import Annotated

import typer

from filaviva.app import load_app
from filaviva.cli import acting
from filaviva.cli.here import environment
from filaviva.cli.output import Json, show_facts, show_json
from filaviva.operations.setup import setup as set_up
from filaviva.settings import Settings, read

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Definitions = Annotated[
    Path | None,
    typer.Option(help="Also write what a broker should load when it boots to this file."),
]


@app.command()
def setup(*, definitions: Definitions = None, json: Json = False) -> None:
    """Migrate the database, declare the topology, publish the contracts of FILAVIVA_APP.

    Safe to repeat, and to run twice at the same time.
    """
    settings = read(Settings, environment())
    done = acting.run(
        acting.guarded(
            set_up(
                database_url=settings.postgres.url.get_secret_value(),
                broker_url=settings.broker.url.get_secret_value(),
                app=load_app(settings.app) if settings.app else None,
                definitions_file=definitions,
            ),
            settings.postgres.url.get_secret_value(),
        )
    )
    facts = {
        "app": settings.app,
        "revision": done.revision,
        "tables": list(done.tables),
        "queues": list(done.queues),
        "added": list(done.published.added),
        "changed": list(done.published.changed),
        "deprecated": list(done.published.deprecated),
        "unknown": list(done.published.unknown),
    }
    astray = [f"{each.found}; next: {each.next_step}" for each in done.stranded]
    if json:
        show_json({**facts, "stranded": astray})
        return
    show_facts(facts)
    for each in astray:
        typer.echo(each, err=True)
    for each in done.published.unknown:
        typer.echo(
            f"{each} would be upcast, but was never published here, so nobody can submit it; next: "
            "register its upcaster with its contract's class, or ignore this",
            err=True,
        )
    if settings.app is None:
        typer.echo("FILAVIVA_APP names no app: no contract was published", err=True)
