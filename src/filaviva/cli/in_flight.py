"""`filaviva contracts in-flight`: may this release be deployed, may that handler go?"""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from filaviva.app import App, load_app
from filaviva.cli import acting
from filaviva.cli.exits import REFUSED
from filaviva.cli.output import Json, show_json, show_list
from filaviva.operations.figures import moment
from filaviva.operations.in_flight import InFlight, unreadable
from filaviva.operations.in_flight import in_flight as find

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
    json: Json = False,
) -> None:
    """Say which versions wait in queues, pauses, parked, in dead letters and schedules.

    Exit code 4 if something of it could not be read: a gate before a deploy.
    """
    release = None if app is None else load_app(app)
    found = acting.on_connection(lambda connection: find(connection, release))
    lost = unreadable(found)
    if json:
        show_json({"items": [_shown(one) for one in found], "next": None})
    else:
        show_list([_shown(one) for one in found], _COLUMNS)
    if lost:
        typer.echo(_refusal(lost, release), err=True)
        raise typer.Exit(REFUSED)


def _shown(one: InFlight) -> dict[str, Any]:
    return {
        "type": one.type,
        "version": one.version,
        "place": one.place,
        "queue": one.queue,
        "messages": one.messages,
        "oldest": moment(one.oldest),
        "app": one.app,
        "readable": one.readable,
    }


def _refusal(lost: Sequence[InFlight], release: App | None) -> str:
    who = "no running worker" if release is None else f"app {release.name!r} does not"
    reads = "reads" if release is None else "read"
    versions = sorted({(one.type, one.version) for one in lost})
    named = ", ".join(f"{kind} v{version}" for kind, version in versions)
    messages = sum(one.messages for one in lost)
    return (
        f"{who} {reads} {named}: {messages} message(s) would be parked; next: keep a handler or an "
        "upcaster of these versions until nothing is left of them, or send back, correct or "
        "discard what is among the dead letters"
    )
