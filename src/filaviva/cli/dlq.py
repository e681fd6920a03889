"""`filaviva dlq`: look at dead letters; replay, correct, discard; silence or close their groups."""

from typing import Annotated, Any
from uuid import UUID

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.cli import acting, replaying
from filaviva.cli.choices import (
    DEAD_REASONS,
    ERROR_CLASSES,
    GROUP_STATES,
    LETTER_STATES,
    one_of,
)
from filaviva.cli.ids import identifier, optional
from filaviva.cli.moments import seconds
from filaviva.cli.output import DryRun, Json, Yes, ask, show_facts, show_json, show_list, show_page
from filaviva.cli.scopes import Scope
from filaviva.errors import Rejected
from filaviva.operations import dead_letters, failure_groups
from filaviva.operations.dead_letters import Filter
from filaviva.operations.discard import discard as discard_letter
from filaviva.operations.replay import ReplayRequest

app = typer.Typer(
    help="Look at dead letters; replay, correct or discard them.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

LetterId = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.")]
GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The failure group's id.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept in the audit log.")]
Limit = Annotated[int, typer.Option(min=1, max=1000)]
Cursor = Annotated[str | None, typer.Option(help="Where the last page ended.")]

_GROUP_COLUMNS = ("id", "state", "open", "count", "type", "errorClass", "message", "lastSeenAt")
_LETTER_COLUMNS = ("id", "status", "reason", "type", "jobId", "attempts", "costUsd", "createdAt")


@app.command()
def groups(
    *,
    state: Annotated[
        str | None,
        typer.Option(callback=one_of(GROUP_STATES), help="open, snoozed or resolved."),
    ] = None,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List failure groups (one per cause), the ones seen last first."""
    items = acting.on_connection(
        lambda connection: failure_groups.page(connection, state=state, limit=limit)
    )
    if json:
        show_json({"items": items, "next": None})
    else:
        show_list(items, _GROUP_COLUMNS)


@app.command("list")
def list_letters(  # noqa: PLR0913 - one argument per filter
    *,
    group: Annotated[str | None, typer.Option(help="Only this failure group's.")] = None,
    job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only this type's.")] = None,
    error_class: Annotated[
        str | None, typer.Option(callback=one_of(ERROR_CLASSES), help="Such as invalid_output.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(callback=one_of(DEAD_REASONS), help="Such as attempts_exhausted.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            callback=one_of(LETTER_STATES), help="open, replaying, resolved or discarded."
        ),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    json: Json = False,
) -> None:
    """List dead letters, newest first."""
    wanted = Filter(
        group=optional(group),
        job=optional(job),
        type=job_type,
        error_class=error_class,
        reason=reason,
        status=status,
    )
    after = optional(cursor)

    async def work(connection: AsyncConnection) -> list[dict[str, Any]]:
        return await dead_letters.page(connection, wanted, after=after, limit=limit + 1)

    found = acting.on_connection(work)
    items, following = found[:limit], found[limit - 1]["id"] if len(found) > limit else None
    show_page(items, _LETTER_COLUMNS, following=following, json=json)


@app.command()
def show(
    letter_id: LetterId,
    *,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="With its content; that you looked is kept.")
    ] = False,
    json: Json = False,
) -> None:
    """Show one dead letter with all that is known; its content is redacted."""
    wanted = identifier(letter_id)

    async def work(connection: AsyncConnection) -> dict[str, Any]:
        if reveal:
            return await dead_letters.reveal(connection, wanted, author=acting.author())
        return await dead_letters.get(connection, wanted)

    shown = acting.on_connection(work)
    (show_json if json else show_facts)(shown)


@app.command()
def replay(  # noqa: PLR0913 - one argument per option of the command
    letters: Annotated[list[str] | None, typer.Argument(metavar="[ID]…")] = None,
    *,
    group: Annotated[str | None, typer.Option(help="All open letters of this group.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="All of this type.")] = None,
    error_class: Annotated[
        str | None, typer.Option(callback=one_of(ERROR_CLASSES), help="All of this error class.")
    ] = None,
    dead_reason: Annotated[
        str | None,
        typer.Option(callback=one_of(DEAD_REASONS), help="All that died for this reason."),
    ] = None,
    reason: Reason,
    rate: Annotated[float | None, typer.Option(help="At most so many a second.")] = None,
    canary: Annotated[
        int | None, typer.Option(help="First so many; the rest if they end well.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Send dead letters back as they are; the dlq-handler sends them at the wanted pace."""
    scope = Scope(tuple(letters or ()), group, job_type, error_class, dead_reason)
    request = ReplayRequest(
        letters=scope.letters(),
        author=acting.author(),
        reason=reason,
        rate_per_second=rate,
        canary=canary,
        scope=scope.shown(),
    )
    replaying.begin(request, dry_run=dry_run, yes=yes, json=json)


@app.command()
def edit(  # noqa: PLR0913 - one argument per option of the command
    letter_id: LetterId,
    *,
    patch: Annotated[str, typer.Option(help="JSON Patch on the job's data.")] = "",
    patch_file: Annotated[
        str | None, typer.Option(help="A file with the patch; - reads stdin.")
    ] = None,
    reason: Reason,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Send a dead letter back with its job's data corrected; shows the difference first."""
    scope = Scope((letter_id,))
    request = ReplayRequest(
        letters=scope.letters(),
        author=acting.author(),
        reason=reason,
        patch=replaying.patch(patch, patch_file),
        scope=scope.shown(),
    )
    replaying.begin(request, dry_run=dry_run, yes=yes, json=json)


@app.command()
def discard(
    letters: Annotated[list[str], typer.Argument(metavar="ID…")],
    *,
    reason: Reason,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Close open dead letters for good, all or none of them; their jobs stay failed."""
    wanted = sorted({identifier(letter) for letter in letters})
    if not dry_run:
        ask(f"Discard {len(wanted)} dead letter(s)?", yes=yes)

    async def work(connection: AsyncConnection) -> list[dict[str, Any]]:
        return await _discard(connection, wanted, reason, trial=dry_run)

    items = acting.on_connection(work)
    if json:
        show_json({"items": items, "dryRun": dry_run})
    else:
        verb = "would discard" if dry_run else "discarded"
        typer.echo(f"{verb} {len(items)}")


@app.command()
def snooze(
    group_id: GroupId,
    *,
    span: Annotated[str, typer.Option("--for", help="Such as 30m, 12h, 7d.")],
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    json: Json = False,
) -> None:
    """Send no alert about a failure group for some time."""
    wanted, silent = identifier(group_id), seconds(span)
    shown = acting.on_connection(
        lambda connection: failure_groups.snooze(
            connection, wanted, author=acting.author(), seconds=silent, reason=reason
        )
    )
    (show_json if json else show_facts)(shown)


@app.command()
def resolve(
    group_id: GroupId,
    *,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    json: Json = False,
) -> None:
    """End a failure group's episode: the next failure of this cause is told again."""
    wanted = identifier(group_id)
    shown = acting.on_connection(
        lambda connection: failure_groups.resolve(
            connection, wanted, author=acting.author(), reason=reason
        )
    )
    (show_json if json else show_facts)(shown)


async def _discard(
    connection: AsyncConnection, letters: list[UUID], reason: str, *, trial: bool
) -> list[dict[str, Any]]:
    if not reason.strip():
        raise Rejected("invalid_data", "expected a reason that says why", status=422)
    trying = await connection.begin_nested()
    done = [
        await discard_letter(connection, letter, author=acting.author(), reason=reason)
        for letter in letters
    ]
    await (trying.rollback() if trial else trying.commit())
    return done
