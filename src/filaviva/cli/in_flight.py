"""`filaviva contracts in-flight`: may this release be deployed, may that handler go?"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.app import App, load_app
from filaviva.broker.depths import QueueDepths
from filaviva.cli import acting
from filaviva.cli.exits import REFUSED
from filaviva.cli.here import environment
from filaviva.cli.output import Json, show_json, show_list
from filaviva.errors import ConfigurationError, FilavivaError, Unreachable
from filaviva.operations.figures import moment
from filaviva.operations.in_flight import InFlight, unreadable
from filaviva.operations.in_flight import in_flight as find
from filaviva.operations.unread import suspects, unread
from filaviva.settings import read

_COLUMNS = ("type", "version", "place", "queue", "messages", "readable", "oldest")


def in_flight(
    *,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:APP",
            help="Whether this app reads them. Default: whether the running workers do.",
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            max=3600,
            metavar="SECONDS",
            help="How long a queue of the broker may take to be empty once.",
        ),
    ] = 5,
    without_broker: Annotated[
        bool,
        typer.Option("--without-broker", help="Leave out what no service has read yet."),
    ] = False,
    json: Json = False,
) -> None:
    """Say which versions wait in queues, pauses, parked, in dead letters and schedules.

    Exit code 4 if something of it could not be read: a gate before a deploy. The broker is asked
    only where a version that is published now would not be read any more.
    """
    release = None if app is None else load_app(app)
    seconds = None if without_broker else wait
    found, unseen = acting.on_engine(lambda engine: _look(engine, release, seconds))
    lost = unreadable(found)
    if unseen is not None and not lost:
        raise unseen
    if json:
        show_json({"items": [_shown(one) for one in found], "next": None})
    else:
        show_list([_shown(one) for one in found], _COLUMNS)
    if lost:
        typer.echo(_refusal(lost, release), err=True)
        raise typer.Exit(REFUSED)


async def _look(
    engine: AsyncEngine, release: App | None, seconds: float | None
) -> tuple[list[InFlight], FilavivaError | None]:
    """Look at the broker first: what is read meanwhile is in the database by then.

    Why the broker could not be looked at is no news where the database says no already.
    """
    waiting: list[InFlight] = []
    unseen: FilavivaError | None = None
    try:
        waiting = await _in_the_broker(engine, release, seconds)
    except (ConfigurationError, Unreachable) as found:
        unseen = found
    async with engine.connect() as connection:
        return [*await find(connection, release), *waiting], unseen


async def _in_the_broker(
    engine: AsyncEngine, release: App | None, seconds: float | None
) -> list[InFlight]:
    if seconds is None:
        return []
    async with engine.connect() as connection:
        found = await suspects(connection, release)
    if not found:
        return []
    depths = QueueDepths(_broker(), name="filaviva in-flight")
    try:
        return await unread(found, depths, seconds=seconds)
    finally:
        await depths.close()


def _broker() -> str:
    try:
        return read(acting.BrokerAddress, environment()).broker.url.get_secret_value()
    except ConfigurationError as missing:
        raise ConfigurationError(
            f"{missing}; events may wait in the broker of versions that would not be read any "
            "more: name it, or leave that out with --without-broker"
        ) from None


def _shown(one: InFlight) -> dict[str, Any]:
    return {
        "type": one.type,
        "version": one.version,
        "place": one.place,
        "queue": one.queue,
        "messages": one.messages,
        "oldest": moment(one.oldest),
        "app": one.apps[0] if one.apps else None,
        "apps": list(one.apps),
        "readable": one.readable,
    }


_KEEP: Final = "keep a handler or an upcaster of these versions until nothing is left of them"
_START: Final = "start workers of a release that reads them: what is parked goes on by itself"


def _refusal(lost: Sequence[InFlight], release: App | None) -> str:
    who = "no running worker reads" if release is None else f"app {release.name!r} does not read"
    would = "wait for one" if release is None else "would be parked"
    step = _KEEP if release is not None else _START
    versions = sorted({(one.type, one.version) for one in lost})
    named = ", ".join(f"{kind} v{version}" for kind, version in versions)
    messages = sum(one.messages for one in lost if one.place != "broker")
    unread = {one.queue: one.messages for one in lost if one.place == "broker"}
    counted = f"{messages} message(s) {would}" if messages or not unread else ""
    queues = ", ".join(f"{count} on {queue}" for queue, count in sorted(unread.items()))
    perhaps = f"among {queues} there may be some that nobody has read yet" if unread else ""
    return (
        f"{who} {named}: {'; '.join(filter(None, (counted, perhaps)))}; next: {step}, or send "
        "back, correct or discard what is among the dead letters"
    )
