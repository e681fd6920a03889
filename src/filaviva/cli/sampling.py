"""`filaviva contracts samples`: outlines of what was really sent, without contents."""

import json as json_text
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.cli import acting
from filaviva.cli.output import Json, show_json, show_list
from filaviva.evolution.samples import Sample, read, read_file
from filaviva.evolution.trial import Tried, summary
from filaviva.operations.figures import moment

_COLUMNS = ("type", "version", "seen", "lastSeenAt", "outline")


def samples(
    job_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="Default: every type.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the samples that workers keep where FILAVIVA_SAMPLES__TYPES names the type."""

    async def of_type(connection: AsyncConnection) -> list[Sample]:
        return await read(connection, job_type)

    items = [_shown(each) for each in acting.on_connection(of_type)]
    if json:
        show_json({"items": items, "next": None})
    else:
        texts = [{**item, "outline": json_text.dumps(item["outline"])} for item in items]
        show_list(texts, _COLUMNS)


def kept(file: Path | None) -> Sequence[Sample]:
    """Give the samples of a file, or else of the database."""
    return acting.on_connection(read) if file is None else read_file(file)


def show(found: Sequence[Tried]) -> None:
    """Say what would become of what was sent."""
    for line in summary(found):
        typer.echo(line)


def _shown(each: Sample) -> dict[str, Any]:
    return {
        "type": each.type,
        "version": each.version,
        "seen": each.seen,
        "lastSeenAt": moment(each.last_seen_at),
        "outline": each.outline,
    }
