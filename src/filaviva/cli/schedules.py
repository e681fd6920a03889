"""`filaviva schedules`: jobs that are submitted by the calendar."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.cli import acting, submitting
from filaviva.cli.choices import one_of, tenant_name
from filaviva.cli.ids import optional
from filaviva.cli.output import DryRun, Json, Yes, ask, show_facts, show_json, show_page
from filaviva.cron import MISSED, OVERLAPS
from filaviva.database.transaction import transact
from filaviva.operations import schedule_shapes, schedules
from filaviva.operations.jobs import Reach
from filaviva.operations.keys import Principal
from filaviva.operations.schedules import Schedule
from filaviva.operations.scheduling import define
from filaviva.operations.submit import Submitted
from filaviva.registry import Registry

app = typer.Typer(
    help="Submit jobs by the calendar.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name or its id.")]
Tenant = Annotated[str, typer.Option(help="Whose schedules.", callback=tenant_name)]
_COLUMNS = ("name", "cron", "timeZone", "type", "enabled", "nextFireAt", "lastFiredAt", "error")


@app.command()
def add(  # noqa: PLR0913 - the fields of a schedule
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as nightly-report.")],
    job_type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as report.build.")],
    *,
    cron: Annotated[str, typer.Option(help="minute hour day month weekday: '30 8 * * MON-FRI'.")],
    time_zone: Annotated[str, typer.Option(help="Such as America/Sao_Paulo.")] = "UTC",
    missed: Annotated[
        str, typer.Option(callback=one_of(MISSED), help="Times nobody fired: skip, once or all.")
    ] = "once",
    overlap: Annotated[
        str,
        typer.Option(
            callback=one_of(OVERLAPS), help="While the job before runs: allow, skip or queue."
        ),
    ] = "allow",
    data: Annotated[str, typer.Option(help="The job's data as JSON.")] = "",
    data_file: Annotated[
        Path | None, typer.Option(help="A file with the data; - reads stdin.", allow_dash=True)
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(help="A batch: a file with a list, each the data of one job; or - ."),
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="So many items at once.")] = None,
    version: Annotated[int | None, typer.Option(help="Default: the newest.")] = None,
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Default: the handler's.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="name=value; repeat for more.")] = None,
    subject: Annotated[str | None, typer.Option(help="The end user it is for.")] = None,
    callback_url: Annotated[str | None, typer.Option(help="Told once it has ended.")] = None,
    tenant: Tenant = "default",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Keep a schedule and show its next five times."""
    body = submitting.body(
        job_type,
        submitting.content(data, data_file, items),
        name=name,
        cron=cron,
        timeZone=time_zone,
        missed=missed,
        overlap=overlap,
        concurrency=concurrency,
        version=version,
        priority=priority,
        maxAttempts=max_attempts,
        labels=submitting.labels(label),
        subject=subject,
        callbackUrl=callback_url,
    )
    _add(body, tenant, dry_run=dry_run, json=json)


@app.command("list")
def list_schedules(
    *,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    json: Json = False,
) -> None:
    """List schedules, newest first."""
    before = optional(cursor)
    found = acting.on_connection(
        lambda on: schedules.newest(on, Reach(tenant), before=before, limit=limit + 1)
    )
    items = [schedule_shapes.summary(one) for one in found[:limit]]
    following = items[-1]["scheduleId"] if len(found) > limit else None
    show_page(items, _COLUMNS, following=following, json=json)


@app.command()
def show(name: Name, *, tenant: Tenant = "default", json: Json = False) -> None:
    """Show a schedule and its next five times."""
    found = acting.on_connection(lambda on: _find(on, name, tenant))
    _show(schedule_shapes.schedule(found), json=json)


@app.command()
def pause(name: Name, *, tenant: Tenant = "default", json: Json = False) -> None:
    """Submit nothing until it is resumed."""
    _enable(name, tenant, enabled=False, json=json)


@app.command()
def resume(name: Name, *, tenant: Tenant = "default", json: Json = False) -> None:
    """Go on from now: what came while it was paused is not made up for."""
    _enable(name, tenant, enabled=True, json=json)


@app.command()
def remove(
    name: Name,
    *,
    tenant: Tenant = "default",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove a schedule; the jobs that it submitted stay."""
    found = acting.on_connection(lambda on: _find(on, name, tenant))
    label = f"schedule {found.name} ({found.cron} {found.time_zone}, {found.type})"
    if dry_run:
        typer.echo(f"would remove {label}")
        return
    ask(f"Remove {label}?", yes=yes)
    _act(name, tenant, lambda on, one: schedules.remove(on, one, author=acting.author()))
    typer.echo(f"removed {label}")


@app.command("run-now")
def run_now(name: Name, *, tenant: Tenant = "default", json: Json = False) -> None:
    """Submit its job now, out of turn."""
    author = acting.author()

    async def work(engine: AsyncEngine) -> Submitted:
        async with engine.connect() as connection:
            found = await _find(connection, name, tenant)
        kept = await submitting.submit(
            engine, submitting.Request(found.job(), tenant=tenant, author=author)
        )
        await transact(engine, lambda on: schedules.fired(on, found, kept.job_id, author=author))
        return kept

    kept = acting.on_engine(work)
    facts = {"jobId": str(kept.job_id), "status": kept.status}
    if json:
        show_json(facts)
    else:
        show_facts(facts)
        typer.echo(f"follow it: filaviva jobs watch {kept.job_id}", err=True)


def _add(body: dict[str, Any], tenant: str, *, dry_run: bool, json: bool) -> None:
    author = acting.author()

    async def work(engine: AsyncEngine) -> dict[str, Any]:
        registry = Registry(engine)
        await registry.refresh()
        wanted = define(
            body,
            Principal(author, tenant, frozenset({"admin"})),
            registry,
            callbacks=submitting.callback_rules(),
        )
        if dry_run:
            return {"name": wanted.name, "nextTimes": schedule_shapes.next_times(wanted.cron)}
        made, _ = await transact(engine, lambda on: schedules.create(on, wanted, author=author))
        return schedule_shapes.schedule(made)

    _show(acting.on_engine(work), json=json)


def _enable(name: str, tenant: str, *, enabled: bool, json: bool) -> None:
    changed = _act(
        name,
        tenant,
        lambda on, found: schedules.enable(on, found, enabled=enabled, author=acting.author()),
    )
    _show(schedule_shapes.schedule(changed), json=json)


def _act(
    name: str, tenant: str, work: Callable[[AsyncConnection, Schedule], Awaitable[Any]]
) -> Any:
    async def act(connection: AsyncConnection) -> Any:
        return await work(connection, await _find(connection, name, tenant, lock=True))

    return acting.on_connection(act)


async def _find(
    connection: AsyncConnection, name: str, tenant: str, *, lock: bool = False
) -> Schedule:
    try:
        which: UUID | str = UUID(name)
    except ValueError:
        which = name
    return await schedules.get(connection, which, Reach(tenant), lock=lock)


def _show(shown: dict[str, Any], *, json: bool) -> None:
    if json:
        show_json(shown)
        return
    show_facts(shown, without=("links", "nextTimes"))
    typer.echo("\nnext times")
    for time in shown["nextTimes"]:
        typer.echo(time)
