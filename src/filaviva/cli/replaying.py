"""Begin a replay from the command line: say what it will do, ask, then do it.

Before: open dead letters. After: they are under a replay, which the dlq-handler carries out.
May happen twice: the second time they are no longer open and are refused.
"""

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import simplejson
import typer
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.cli import acting
from filaviva.cli.output import ask, show_facts, show_json
from filaviva.cli.submitting import json_of
from filaviva.database.transaction import transact
from filaviva.operations import dead_letters
from filaviva.operations.corrections import corrected, validator
from filaviva.operations.replay import ReplayRequest, plan, start
from filaviva.registry import Registry


@dataclass(frozen=True, slots=True)
class Planned:
    """What a replay would do; `difference` are the lines that a correction changes."""

    report: dict[str, Any]
    difference: list[str] = field(default_factory=list)


def begin(request: ReplayRequest, *, dry_run: bool, yes: bool, json: bool) -> None:
    """Plan the replay, show it, ask, and begin it."""
    planned = acting.on_engine(lambda engine: _plan(engine, request))
    if dry_run or not json:
        _show(planned, json=json)
    if dry_run:
        return
    ask(f"Replay {planned.report['progress']['total']} dead letter(s)?", yes=yes)
    begun = acting.on_engine(lambda engine: _start(engine, request))
    if json:
        show_json(begun)
    else:
        typer.echo(f"replay {begun['id']} has begun")
        typer.echo(f"follow it: filaviva replays show {begun['id']}", err=True)


def patch(text: str, file: str | None) -> Any:
    """Read a JSON Patch from an option or a file; the replay checks it."""
    if bool(text) == (file is not None):
        raise typer.BadParameter("expected the patch once: --patch JSON or --patch-file FILE")
    return json_of(text, None if file is None else Path(file), what="--patch")


async def _plan(engine: AsyncEngine, request: ReplayRequest) -> Planned:
    registry = await _registry(engine)

    async def work(connection: AsyncConnection) -> Planned:
        report = await plan(connection, request, registry=registry)
        return Planned(report, await _difference(connection, request, registry))

    return await transact(engine, work)


async def _start(engine: AsyncEngine, request: ReplayRequest) -> dict[str, Any]:
    registry = await _registry(engine)
    return await transact(engine, lambda on: start(on, request, registry=registry))


async def _registry(engine: AsyncEngine) -> Registry:
    registry = Registry(engine)
    await registry.refresh()
    return registry


async def _difference(
    connection: AsyncConnection, request: ReplayRequest, registry: Registry
) -> list[str]:
    """Show what a correction changes; that somebody saw the data is kept."""
    if request.patch is None or not request.letters.ids:
        return []
    letter = await dead_letters.reveal(connection, request.letters.ids[0], author=request.author)
    before = letter["payload"].encoded_json
    after = corrected(
        before,
        request.patch,
        type=letter["type"],
        version=letter["version"],
        validate=validator(registry),
    )
    lines = difflib.unified_diff(
        _lines(before), _lines(after), "as it is", "corrected", lineterm="", n=2
    )
    return list(lines)


def _show(planned: Planned, *, json: bool) -> None:
    report = planned.report
    facts = {
        "letters": report["progress"]["total"],
        "refused": report["refused"],
        "estimatedCostUsd": report["estimatedCostUsd"],
    }
    if json:
        show_json({**facts, "difference": planned.difference, "dryRun": True})
        return
    show_facts(facts)
    for line in planned.difference:
        typer.echo(line)


def _lines(text: str) -> list[str]:
    value = simplejson.loads(text, use_decimal=True)
    written: str = simplejson.dumps(value, use_decimal=True, ensure_ascii=False, indent=2)
    return written.splitlines()
