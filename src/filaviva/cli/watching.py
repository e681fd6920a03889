"""Follow a job's timeline until the job ends, and print it as it grows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

import simplejson
import typer
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.cli.bar import Bar
from filaviva.cli.output import printable
from filaviva.listening import Listening
from filaviva.notify import CHANNEL, EVERYTHING
from filaviva.operations import jobs, shapes

FINAL: Final = frozenset({"succeeded", "failed", "canceled"})
_POLL: Final = 0.5
_GOODBYE: Final = 2.0

Find: TypeAlias = Callable[[AsyncConnection, UUID], Awaitable[jobs.Job]]


class Printer:
    """Say what happened: a line each, and on a terminal a bar below them that moves."""

    def __init__(self, *, json: bool, bar: Bar | None = None) -> None:
        self._json = json
        self._bar = bar or Bar(live=False if json else None)

    def standing(self, job: jobs.Job) -> None:
        """Show how far the job is."""
        until = job.finished_at or datetime.now(UTC)
        self._bar.draw(job, max(0.0, (until - job.created_at).total_seconds()))

    def happened(self, event: jobs.Event) -> None:
        """Print one entry of the timeline."""
        shown = shapes.event(event)
        if self._json:
            typer.echo(shapes.dumps(shown))
            return
        facts = simplejson.loads(event.data, use_decimal=True)
        if self._bar.live and _shown_by_the_bar(event.kind, facts):
            return
        self._bar.clear()
        words = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
        typer.echo(f"{event.at:%H:%M:%S}  {event.kind:<10} {words}".rstrip())

    def ended(self, job: jobs.Job) -> None:
        """Print how the job ended."""
        shown = shapes.job(job)
        if self._json:
            typer.echo(shapes.dumps(shown))
            return
        self._bar.clear()
        told = shown["progress"]
        batch = told is not None and job.attempt == 0
        how = f": {told['message']}" if batch else f" after {job.attempt} attempt(s)"
        typer.echo(f"{job.state}{how}, {shown['costUsd']} USD")
        if job.state == "succeeded" and job.result is not None:
            typer.echo(printable(job.result))
        if job.state != "succeeded" and job.error is not None:
            typer.echo(printable(job.error))


async def follow(engine: AsyncEngine, job_id: UUID, say: Printer, find: Find) -> jobs.Job:
    """Tell each event once, in order, until the job is final; return the job.

    A notification only hurries the next look: it may be lost.
    """
    hurry, stop = asyncio.Event(), asyncio.Event()
    listening = asyncio.create_task(
        Listening(engine, CHANNEL, lambda heard: _hear(hurry, job_id, heard)).run(stop)
    )
    last = 0
    try:
        while True:
            hurry.clear()
            async with engine.connect() as connection:
                # The job first: what made it final has then been written to its timeline.
                job = await find(connection, job_id)
                events = await jobs.timeline(connection, job_id, after=last)
            for event in events:
                say.happened(event)
                last = event.id
            if job.state in FINAL and not events:
                return job
            say.standing(job)
            if not events:
                await _hurried(hurry)
    finally:
        stop.set()
        await _ended(listening)


def _hear(hurry: asyncio.Event, job_id: UUID, heard: str | None) -> None:
    if heard is None or heard == EVERYTHING or str(job_id) in heard:
        hurry.set()


async def _hurried(hurry: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_POLL):
            await hurry.wait()
    except TimeoutError:
        pass


async def _ended(listening: asyncio.Task[None]) -> None:
    """Let it close its connection; a cancel would cut that short, and the driver complain."""
    _, late = await asyncio.wait({listening}, timeout=_GOODBYE)
    for task in late:
        task.cancel()


def _shown_by_the_bar(kind: str, facts: Mapping[str, Any]) -> bool:
    """Leave out what the bar tells: of ten thousand items the failed ones are worth a line."""
    return kind == "progress" or (kind == "item" and facts.get("status") != "failed")


def _word(value: Any) -> str:
    return printable(value if isinstance(value, str) else shapes.dumps(value))
