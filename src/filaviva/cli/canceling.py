"""Cancel jobs from the command line: say what would stop, ask, then do it.

Before: somebody wants no more of these jobs. After: as `operations.cancel` says.
May happen twice: what is final is refused, what was asked before stays asked.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import typer
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.cli import acting, submitting
from filaviva.cli.exits import REFUSED
from filaviva.cli.output import ask, show_json, show_list
from filaviva.database.tables import jobs
from filaviva.errors import NotFound
from filaviva.operations.cancel import FINAL, cancel
from filaviva.operations.stop import Cancellation

_COLUMNS: Final = ("jobId", "type", "status", "items")


def cancel_jobs(
    job_ids: Sequence[UUID], *, reason: str | None, dry_run: bool, yes: bool, json: bool
) -> None:
    """Show what would stop, ask, and cancel; exit code 4 if any had ended already."""
    before = acting.on_connection(lambda connection: _present(connection, job_ids))
    if dry_run or not (json or yes):
        _show(before, json=json, dry_run=dry_run)
    if dry_run:
        return
    ask(f"Cancel {len(before)} job(s)?", yes=yes)

    async def work(connection: AsyncConnection) -> Cancellation:
        done = await cancel(connection, job_ids, author=acting.author(), reason=reason)
        await submitting.let_go(connection, done.messages)
        return done

    done = acting.on_connection(work)
    after = [{**job, "status": done.state(UUID(job["jobId"]))} for job in before]
    _show(after, json=json, dry_run=False)
    changed = {str(job.id) for job in done.jobs if job.changed or job.state not in FINAL}
    if any(job["jobId"] not in changed for job in after):
        typer.echo("final already: nothing to cancel there", err=True)
        raise typer.Exit(REFUSED)


async def _present(connection: AsyncConnection, job_ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """Give the jobs as they are, with how many of their items have not ended."""
    item = jobs.alias("item")
    open_items = (
        select(func.count())
        .where(item.c.parent_id == jobs.c.id, item.c.state.not_in(FINAL))
        .scalar_subquery()
    )
    found = await connection.execute(
        select(jobs.c.id, jobs.c.type, jobs.c.state, open_items).where(jobs.c.id.in_(job_ids))
    )
    known = {row[0]: row for row in found}
    for job_id in job_ids:
        if job_id not in known:
            raise NotFound(f"there is no job {job_id}")
    return [
        {"jobId": str(job), "type": kind, "status": state, "items": items or None}
        for job, kind, state, items in (known[job_id] for job_id in dict.fromkeys(job_ids))
    ]


def _show(found: Sequence[dict[str, Any]], *, json: bool, dry_run: bool) -> None:
    if json:
        show_json({"items": found, **({"dryRun": True} if dry_run else {})})
    else:
        show_list(found, _COLUMNS)
