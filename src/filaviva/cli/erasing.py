"""Erase jobs' data from the command line: shown first, asked, audited.

Before: a final job. After: what it knew of people is gone, and the facts stay.
May happen twice: the second time there is nothing left to erase.
"""

from uuid import UUID

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.cli import acting
from filaviva.cli.output import ask, show_facts, show_json
from filaviva.operations import erasure, jobs
from filaviva.operations.erasure import Erased
from filaviva.operations.figures import moment
from filaviva.operations.jobs import Job, Reach


def erase_job(job_id: UUID, *, dry_run: bool, yes: bool, json: bool) -> None:
    """Say whose data would go, ask, and erase it; its items' too."""
    found = acting.on_connection(lambda connection: _find(connection, job_id))
    label = f"the data of job {found.id} ({found.type}, {found.state}) and of its items"
    if dry_run:
        typer.echo(f"would erase {label}")
        return
    ask(f"Erase {label} for good?", yes=yes)

    async def work(connection: AsyncConnection) -> Erased:
        reach = Reach(await jobs.tenant_of(connection, job_id))
        return await erasure.erase(connection, job_id, reach, author=acting.author())

    done = acting.on_connection(work)
    facts = {"jobId": str(done.job_id), "erasedAt": moment(done.at), "items": done.items}
    if json:
        show_json(facts)
    else:
        show_facts(facts)


async def _find(connection: AsyncConnection, job_id: UUID) -> Job:
    return await jobs.get(connection, job_id, Reach(await jobs.tenant_of(connection, job_id)))
