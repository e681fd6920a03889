"""`filaviva jobs`: submit jobs and see what became of them."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import typer
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.cli import acting, canceling, erasing, links, retrying, submitting, watching
from filaviva.cli.choices import JOB_STATES, one_of, tenant_name
from filaviva.cli.exits import FAILED
from filaviva.cli.ids import identifier, optional
from filaviva.cli.output import DryRun, Json, Yes, show_facts, show_json, show_list, show_page
from filaviva.operations import jobs, shapes
from filaviva.operations.batch_request import MOST_ITEMS
from filaviva.operations.retry import Wish
from filaviva.operations.submit import Submitted

app = typer.Typer(
    help="Submit jobs and see what became of them.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command()(links.link)

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
Tenant = Annotated[str, typer.Option(help="Whose jobs.", callback=tenant_name)]
# More attempts than allowed look like a fault, and are none.
_MORE_ATTEMPTS = (
    "more attempts than max attempts: a replay or retry gives a fresh allowance, "
    "and lost and released attempts do not use it up"
)
_COLUMNS = (
    "jobId",
    "type",
    "version",
    "status",
    "attempt",
    "costUsd",
    "createdAt",
    "finishedAt",
    "waitingFor",
)


@app.command()
def submit(  # noqa: PLR0913 - the fields of a submission
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as invoice.extract.")],
    *,
    data: Annotated[str, typer.Option(help="The job's data as JSON.")] = "",
    data_file: Annotated[
        Path | None, typer.Option(help="A file with the data; - reads stdin.", allow_dash=True)
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(help="A batch: a file with a list, each the data of one job; or - ."),
    ] = None,
    fail_fast: Annotated[bool | None, typer.Option(help="Stop at the first failed item.")] = None,
    max_failures: Annotated[int | None, typer.Option(help="So many may fail.")] = None,
    accept_partial: Annotated[
        bool | None, typer.Option(help="Whether it succeeds if any item did.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="So many items at once.")] = None,
    version: Annotated[int | None, typer.Option(help="Default: the newest.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key is the same job.")
    ] = None,
    tenant: Tenant = "default",
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    run_at: Annotated[str | None, typer.Option(help="Not before, RFC 3339.")] = None,
    deadline: Annotated[str | None, typer.Option(help="Not after, RFC 3339.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Default: the handler's.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="name=value; repeat for more.")] = None,
    subject: Annotated[str | None, typer.Option(help="The end user it is for.")] = None,
    callback_url: Annotated[str | None, typer.Option(help="Told once it has ended.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Watch it until it ends.")] = False,
    json: Json = False,
) -> None:
    """Submit a job; it is kept once this returns."""
    body = submitting.body(
        job_type,
        submitting.content(data, data_file, items),
        version=version,
        priority=priority,
        runAt=run_at,
        deadline=deadline,
        maxAttempts=max_attempts,
        labels=submitting.labels(label),
        subject=subject,
        failFast=fail_fast,
        maxFailures=max_failures,
        acceptPartial=accept_partial,
        concurrency=concurrency,
        callbackUrl=callback_url,
    )
    named = {} if key is None else {"key": key}
    request = submitting.Request(body, tenant=tenant, author=acting.author(), **named)
    kept = acting.on_engine(lambda engine: submitting.submit(engine, request))
    if wait:
        _follow(kept.job_id, json=json)
    else:
        _show_kept(kept, request.key, json=json)


_PARTS: Final[Mapping[str, tuple[Callable[..., Awaitable[Any]], Callable[[Any], Any]]]] = {
    "items": (partial(jobs.items, limit=MOST_ITEMS), shapes.item),
    "attempts": (jobs.attempts, shapes.attempt),
    "steps": (jobs.steps, shapes.step),
    "timeline": (jobs.timeline, shapes.event),
}


@app.command()
def get(  # noqa: PLR0913 - a switch for each part
    job_id: JobId,
    *,
    items: Annotated[bool, typer.Option("--items", help="Also every item of a batch.")] = False,
    attempts: Annotated[bool, typer.Option("--attempts", help="Also every attempt.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Also every step.")] = False,
    timeline: Annotated[bool, typer.Option("--timeline", help="Also what happened.")] = False,
    json: Json = False,
) -> None:
    """Show a job as it is now."""
    wanted = identifier(job_id)
    asked = {"items": items, "attempts": attempts, "steps": steps, "timeline": timeline}
    parts = [part for part, is_asked in asked.items() if is_asked]

    async def work(connection: AsyncConnection) -> dict[str, Any]:
        shown = shapes.job(await find(connection, wanted))
        for part in parts:
            read, shape = _PARTS[part]
            shown[part] = [*map(shape, await read(connection, wanted))]
        return shown

    shown = acting.on_connection(work)
    if json:
        show_json(shown)
        return
    show_facts(shown, without=("links", *parts))
    if shown["attempt"] > shown["maxAttempts"]:
        typer.echo(f"\n{_MORE_ATTEMPTS}")
    for part in parts:
        typer.echo(f"\n{part}")
        show_list(shown[part], list(shown[part][0]) if shown[part] else [])


@app.command("list")
def list_jobs(  # noqa: PLR0913 - one argument per filter
    *,
    status: Annotated[
        list[str] | None,
        typer.Option(callback=one_of(JOB_STATES), help="Such as running; repeat for more."),
    ] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only this type.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="name=value; repeat for more.")] = None,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    json: Json = False,
) -> None:
    """List jobs, newest first."""
    filters = jobs.Filters(
        statuses=tuple(status or ()), type=job_type, labels=submitting.labels(label) or {}
    )
    before = optional(cursor)

    async def work(connection: AsyncConnection) -> list[jobs.Job]:
        reach = jobs.Reach(tenant)
        return await jobs.newest(connection, reach, filters, before=before, limit=limit + 1)

    found = acting.on_connection(work)
    items = [shapes.job_summary(job) for job in found[:limit]]
    following = items[-1]["jobId"] if len(found) > limit else None
    show_page(items, _COLUMNS, following=following, json=json)


@app.command()
def watch(job_id: JobId, *, json: Json = False) -> None:
    """Show what happens to a job until it ends; exit code 1 if it did not succeed.

    On a terminal with a bar that shows how far it is, a batch by its items.
    With --json one object a line.
    """
    _follow(identifier(job_id), json=json)


@app.command()
def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID…", help="The jobs' ids.")],
    *,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Cancel jobs: at once what waits, as soon as it has stopped what runs; batches with items.

    Exit code 4 if one of them had ended already.
    """
    wanted = [identifier(job_id) for job_id in job_ids]
    canceling.cancel_jobs(wanted, reason=reason, dry_run=dry_run, yes=yes, json=json)


@app.command()
def retry(  # noqa: PLR0913 - what, with what, why
    job_id: JobId,
    *,
    item: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this item of a batch; repeat for more.")
    ] = None,
    data: Annotated[str, typer.Option(help="Corrected data as JSON.")] = "",
    data_file: Annotated[
        Path | None, typer.Option(help="A file with it; - reads stdin.", allow_dash=True)
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(help='A file with a list of {"index", "data"}; - reads stdin.'),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it is kept.")] = "retry",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Repeat a failed or canceled job, or the failed and canceled items of a batch.

    Exit code 4 if nothing of it had failed.
    """
    parts = retrying.wish(item, data, data_file, items)
    wish = Wish(author=acting.author(), reason=reason, **parts)
    retrying.retry_job(identifier(job_id), wish, dry_run=dry_run, yes=yes, json=json)


@app.command()
def erase(job_id: JobId, *, dry_run: DryRun = False, yes: Yes = False, json: Json = False) -> None:
    """Erase what a final job, and its items, know of people; the facts stay.

    Exit code 4 while it is not final, or a replay is about to send it back.
    """
    erasing.erase_job(identifier(job_id), dry_run=dry_run, yes=yes, json=json)


async def find(connection: AsyncConnection, job_id: UUID) -> jobs.Job:
    """Find a job of any tenant: who has the database sees everybody's."""
    tenant = await jobs.tenant_of(connection, job_id)
    return await jobs.get(connection, job_id, jobs.Reach(tenant))


def _follow(job_id: UUID, *, json: bool) -> None:
    say = watching.Printer(json=json)

    async def work(engine: AsyncEngine) -> jobs.Job:
        async with engine.connect() as connection:
            await find(connection, job_id)
        return await watching.follow(engine, job_id, say, find)

    ended = acting.on_engine(work)
    say.ended(ended)
    if ended.state != "succeeded":
        raise typer.Exit(FAILED)


def _show_kept(kept: Submitted, key: str, *, json: bool) -> None:
    facts = {
        "jobId": str(kept.job_id),
        "status": kept.status,
        "duplicate": kept.duplicate,
        "idempotencyKey": key,
    }
    if json:
        show_json(facts)
    else:
        show_facts(facts)
        typer.echo(f"follow it: filaviva jobs watch {kept.job_id}", err=True)
