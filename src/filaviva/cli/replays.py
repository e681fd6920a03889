"""`filaviva replays`: what became of replays, and stopping one."""

from typing import Annotated

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.cli import acting
from filaviva.cli.ids import identifier, optional
from filaviva.cli.output import DryRun, Json, Yes, ask, show_facts, show_json, show_list, show_page
from filaviva.errors import Rejected
from filaviva.operations import replay, replay_report

app = typer.Typer(
    help="Follow and stop replays.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

ReplayId = Annotated[str, typer.Argument(metavar="ID", help="The replay's id.")]
_COLUMNS = ("id", "status", "author", "reason", "patched", "createdAt", "finishedAt")
_LETTERS = ("deadLetterId", "jobId", "status", "costUsd", "error")


@app.command("list")
def list_replays(
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    json: Json = False,
) -> None:
    """List replays, newest first."""
    after = optional(cursor)
    found = acting.on_connection(
        lambda connection: replay_report.page(connection, after=after, limit=limit + 1)
    )
    items, following = found[:limit], found[limit - 1]["id"] if len(found) > limit else None
    show_page(items, _COLUMNS, following=following, json=json)


@app.command()
def show(replay_id: ReplayId, *, json: Json = False) -> None:
    """Show a replay: progress, each letter's result, cost before and after."""
    wanted = identifier(replay_id)
    shown = acting.on_connection(lambda connection: replay_report.report(connection, wanted))
    if json:
        show_json(shown)
        return
    show_facts(shown, without=("letters",))
    typer.echo("\nletters")
    show_list(shown["letters"], _LETTERS)


@app.command()
def stop(
    replay_id: ReplayId, *, dry_run: DryRun = False, yes: Yes = False, json: Json = False
) -> None:
    """Send no further letter of a replay; those that wait are open again, those sent go on."""
    wanted = identifier(replay_id)
    shown = acting.on_connection(lambda connection: replay_report.report(connection, wanted))
    if shown["status"] != "running":
        detail = f"replay {wanted} is {shown['status']}, expected running"
        raise Rejected("conflict", detail, status=409)
    waiting = shown["progress"]["waiting"]
    if dry_run:
        typer.echo(f"would stop replay {wanted}: {waiting} letter(s) wait")
        return
    ask(f"Stop replay {wanted} ({waiting} letter(s) wait)?", yes=yes)

    async def work(connection: AsyncConnection) -> dict[str, object]:
        return await replay.stop(connection, wanted, author=acting.author())

    stopped = acting.on_connection(work)
    (show_json if json else show_facts)(stopped)
