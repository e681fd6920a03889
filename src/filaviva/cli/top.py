"""`filaviva top`: what waits, runs and is stuck, now."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

import typer
from rich.console import Console

from filaviva.broker.depths import QueueDepths
from filaviva.cli import acting
from filaviva.cli.choices import one_of, queue_names
from filaviva.cli.here import environment
from filaviva.cli.output import Json, show_json
from filaviva.cli.top_grid import page
from filaviva.cli.top_live import Screen
from filaviva.cli.top_looking import Looking
from filaviva.cli.top_view import SORTS, header, sections
from filaviva.database import connect
from filaviva.errors import ConfigurationError
from filaviva.operations.overview import shown
from filaviva.operations.overview.figures import Chosen
from filaviva.settings import read

app = typer.Typer(add_completion=False, rich_markup_mode=None)

# Wide enough for every column, where it goes to a file.
_WIDE, _LONG = 200, 10_000
_PATIENCE: Final = 3.0


@app.command()
def top(  # noqa: PLR0913 - what to see, and how
    *,
    queue: Annotated[
        list[str] | None,
        typer.Option(callback=queue_names, help="Only this queue; repeat for more."),
    ] = None,
    job_type: Annotated[
        list[str] | None, typer.Option("--type", help="Only this job type; repeat for more.")
    ] = None,
    sort: Annotated[
        str, typer.Option(callback=one_of(SORTS), help=f"By {', '.join(SORTS)}.")
    ] = SORTS[0],
    interval: Annotated[
        float, typer.Option(min=0.5, max=3600, help="Look every so many seconds.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once.")] = False,
    json: Json = False,
) -> None:
    """Show what is stuck, what waits and runs, how fast, and what is oldest.

    On a terminal the page is kept up to date; q leaves. Elsewhere it is printed once.
    """
    chosen = Chosen(tuple(queue or ()), tuple(job_type or ()))
    console = Console()
    live = console.is_terminal and not console.is_dumb_terminal and not once and not json
    if live:
        acting.run(_live(chosen, console, interval, sort))
    else:
        acting.run(_once(chosen, console, sort, json=json))


async def _live(chosen: Chosen, console: Console, interval: float, sort: str) -> None:
    async with _looking(chosen) as (looking, _):
        await Screen(looking, console, interval=interval, sort=sort).run()


async def _once(chosen: Chosen, console: Console, sort: str, *, json: bool) -> None:
    async with _looking(chosen) as (looking, url):
        with acting.database_errors(url):
            found = await looking.look()
    seen = looking.seen
    if json:
        about = shown.overview(found, list(seen.stuck), seen.depths)
        show_json({**about, "brokerAway": seen.broker_away})
        return
    head = header(seen, every=0.0, sort=sort, live=False)
    width, height = (console.width, _LONG) if console.is_terminal else (_WIDE, _LONG)
    for line in page(head, sections(seen, sort), width, height):
        console.print(line, soft_wrap=True)


@asynccontextmanager
async def _looking(chosen: Chosen) -> AsyncIterator[tuple[Looking, str]]:
    given = environment()
    url = read(acting.DatabaseSettings, given).postgres.url.get_secret_value()
    try:
        engine = connect(url, name="filaviva-top", size=1, patience=_PATIENCE)
    except ValueError as wrong:
        raise ConfigurationError(f"FILAVIVA_POSTGRES__URL: {wrong}") from None
    depths = None
    if any(given.get(f"FILAVIVA_BROKER__URL{ending}") for ending in ("", "_FILE")):
        broker = read(acting.BrokerAddress, given).broker.url.get_secret_value()
        depths = QueueDepths(broker, name="filaviva top")
    try:
        yield Looking(engine, url, depths, chosen), url
    finally:
        await engine.dispose()
        if depths is not None:
            await depths.close()
