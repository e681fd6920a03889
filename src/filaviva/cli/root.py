"""Every command there is: its place and what it is for."""

from importlib.metadata import version
from typing import Annotated, Any, ClassVar

import typer

from filaviva.cli.deferred import Deferred


class Commands(Deferred):
    """`filaviva …`."""

    places: ClassVar = {
        "setup": (
            "filaviva.cli.setup:app",
            "Migrate the database, declare the topology, publish an app's contracts.",
        ),
        "run": ("filaviva.cli.run:app", "Run one service in the foreground."),
        "outbox-table": (
            "filaviva.cli.outbox_table:app",
            "Print the SQL of the outbox for a service's own database.",
        ),
        "dev": (
            "filaviva.dev.command:app",
            "Run the embedded stack: every service as its own process.",
        ),
        "doctor": ("filaviva.cli.doctor:app", "Say what is wrong, and the next step."),
        "top": ("filaviva.cli.top:app", "Show what waits, runs and is stuck, now."),
        "drill": (
            "filaviva.cli.drill:app",
            "Cut a provider on the running stack and check what is promised about it.",
        ),
        "jobs": ("filaviva.cli.jobs:app", "Submit jobs and see what became of them."),
        "schedules": ("filaviva.cli.schedules:app", "Submit jobs by the calendar."),
        "callbacks": ("filaviva.cli.callbacks:app", "Show what receivers verify callbacks with."),
        "dlq": (
            "filaviva.cli.dlq:app",
            "Look at dead letters; replay, correct or discard them.",
        ),
        "replays": ("filaviva.cli.replays:app", "Follow and stop replays."),
        "contracts": ("filaviva.cli.contracts:app", "See what is published in the registry."),
        "topology": ("filaviva.cli.topology:app", "Compare the broker with what should be there."),
        "keys": ("filaviva.cli.keys:app", "Create, list and revoke API keys."),
        "limits": (
            "filaviva.cli.limits:app",
            "Set, list and remove limits of tenants and of their end users.",
        ),
    }


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Long, costly, failure-prone jobs: identifiable, observable, recoverable, effect once.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused, 5 unreachable.",
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if wanted:
        typer.echo(f"filaviva {version('filaviva')}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the release."),
    ] = False,
) -> None:
    """Take what stands before the command."""


def root() -> Any:
    """Give the command line as one command."""
    return typer.main.get_command(app)
