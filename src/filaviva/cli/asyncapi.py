"""`filaviva contracts asyncapi`: the contracts as one document, for every language."""

import json as json_text
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.app import load_app
from filaviva.asyncapi import Told, document, of_app, of_registry
from filaviva.cli import acting
from filaviva.errors import ConfigurationError
from filaviva.evolution.writing import write_text
from filaviva.registry import Registry

_WRITTEN = (".json", ".yaml", ".yml")


def asyncapi(
    *,
    app: Annotated[
        str, typer.Option(metavar="MODULE:APP", help="Default: what is in the registry.")
    ] = "",
    release: Annotated[str, typer.Option(help="What the document says is its version.")] = "1",
    internal: Annotated[
        bool, typer.Option("--internal", help="Also what goes between our own services.")
    ] = False,
    to: Annotated[Path | None, typer.Option(help="A file: .json or .yaml.")] = None,
) -> None:
    """Print the AsyncAPI 3.1 document of the contracts, or write it to a file."""
    if to is not None and to.suffix not in _WRITTEN:
        raise ConfigurationError(f"--to: found {to}, expected a name that ends in .json or .yaml")
    title, told = _loaded(app) if app else ("Filaviva", acting.on_engine(_of_registry))
    found = document(told, title=title, version=release, internal=internal)
    text = written(found, yaml=to is not None and to.suffix != ".json")
    if to is None:
        typer.echo(text, nl=False)
    else:
        write_text(to, text)
        typer.echo(str(to))


def own() -> str:
    """Write the document of our own messages."""
    title = "Filaviva's own messages"
    found = document((), title=title, version=version("filaviva-contracts"), internal=True)
    return written(found, yaml=True)


def written(found: dict[str, Any], *, yaml: bool) -> str:
    """Write a document as text."""
    text = json_text.dumps(found, indent=2, ensure_ascii=False) + "\n"
    if not yaml:
        return text
    import yaml as yaml_text  # noqa: PLC0415 - only who asks for it waits for it

    # Read anew, so that what is the same in two places is written out in both.
    plain = json_text.loads(text)
    return str(yaml_text.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100))


def _loaded(path: str) -> tuple[str, list[Told]]:
    app = load_app(path)
    return app.name, of_app(app)


async def _of_registry(engine: AsyncEngine) -> list[Told]:
    registry = Registry(engine)
    await registry.refresh()
    return of_registry(registry.all())
