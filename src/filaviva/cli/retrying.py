"""Repeat what failed from the command line: say what would go, ask, then do it.

Before: a job, or items of a batch, are failed or canceled. After: as `operations.retry` says.
May happen twice: the second time nothing is failed any more, and it is refused.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import typer
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.cli import acting, submitting
from filaviva.cli.output import ask, show_facts, show_json
from filaviva.database.transaction import transact
from filaviva.operations import jobs
from filaviva.operations.corrections import validator
from filaviva.operations.jobs import Reach
from filaviva.operations.retry import Part, Retried, Wish, retry
from filaviva.registry import Registry

_INDEX: Final = "index"


def retry_job(job_id: UUID, wish: Wish, *, dry_run: bool, yes: bool, json: bool) -> None:
    """Try it, show what would go, ask, and do it."""
    would = acting.on_engine(lambda engine: _retry(engine, job_id, wish, keep=False))
    if dry_run or not (json or yes):
        _show(would, json=json, dry_run=dry_run)
    if dry_run:
        return
    ask(f"Repeat {len(would.jobs)} job(s)?", yes=yes)
    done = acting.on_engine(lambda engine: _retry(engine, job_id, wish, keep=True))
    _show(done, json=json, dry_run=False)


def wish(
    items: Sequence[int] | None, data: str, data_file: Path | None, items_file: Path | None
) -> dict[str, Any]:
    """Put together which items go and with what data; each is said in one place only."""
    given = bool(data) or data_file is not None
    if items_file is not None:
        if items or given:
            raise typer.BadParameter("expected --items FILE alone: it names items and their data")
        return {"parts": _parts(submitting.json_of("", items_file, what="--items"))}
    if not given:
        return {"parts": [Part(index) for index in items]} if items else {}
    value = submitting.json_of(data, data_file, what="--data")
    if not items:
        return {"data": value}
    if len(items) > 1:
        raise typer.BadParameter("expected one --item with --data; for several use --items FILE")
    return {"parts": [Part(items[0], value)]}


def _parts(value: Any) -> list[Part]:
    if not isinstance(value, list) or not all(_is_part(one) for one in value):
        raise typer.BadParameter('--items: expected a list of {"index": 3, "data": …}')
    return [Part(**one) for one in value]


def _is_part(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and type(value.get(_INDEX)) is int
        and value.keys() <= {_INDEX, "data"}
    )


async def _retry(engine: AsyncEngine, job_id: UUID, wanted: Wish, *, keep: bool) -> Retried:
    registry = Registry(engine)
    await registry.refresh()

    async def work(connection: AsyncConnection) -> Retried:
        reach = Reach(await jobs.tenant_of(connection, job_id))
        trial = await connection.begin_nested()
        done = await retry(connection, job_id, reach, wanted, validate=validator(registry))
        if keep:
            await submitting.let_go(connection, done.messages)
        else:
            await trial.rollback()
        return done

    return await transact(engine, work)


def _show(done: Retried, *, json: bool, dry_run: bool) -> None:
    shown: dict[str, Any] = {
        "jobId": str(done.job_id),
        "status": done.state,
        "retried": len(done.jobs),
        "refused": list(done.refused),
    }
    if json:
        show_json({**shown, **({"dryRun": True} if dry_run else {})})
    else:
        show_facts(shown)
