"""`filaviva run SERVICE`: find a service among the installed packages and run it."""

import os
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Final

import typer

from filaviva.errors import ConfigurationError

GROUP: Final = "filaviva.services"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def run(
    service: Annotated[str, typer.Argument(help="producer, worker, …")],
    *,
    postgres: Annotated[
        str | None,
        typer.Option(help="The database, instead of FILAVIVA_POSTGRES__URL (others may see it)."),
    ] = None,
) -> None:
    """Run one service in the foreground until SIGTERM or Ctrl-C; settings come from FILAVIVA_…"""
    if postgres is not None:
        os.environ["FILAVIVA_POSTGRES__URL"] = postgres
        os.environ.pop("FILAVIVA_POSTGRES__URL_FILE", None)
    main = _load(find(service))
    main()


def find(service: str) -> EntryPoint:
    """Find the entry point of a service."""
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if service not in installed:
        known = ", ".join(sorted(installed)) or "none (pip install filaviva-worker, …)"
        raise ConfigurationError(f"found no service {service!r}; installed are: {known}")
    return installed[service]


def _load(entry: EntryPoint) -> Callable[[], None]:
    try:
        return entry.load()  # type: ignore[no-any-return]
    except ModuleNotFoundError as missing:
        if missing.name != entry.module:
            raise  # the service's own code imports something that is not there
        raise ConfigurationError(
            f"service {entry.name}: found no module {entry.module}, expected the package "
            f"{entry.dist.name if entry.dist else 'that declares it'} to be complete; "
            "install it again"
        ) from None
