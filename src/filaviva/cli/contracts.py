"""`filaviva contracts`: what setup has published in the registry."""

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.cli import acting, asyncapi, in_flight, uses
from filaviva.cli.output import Json, show_json, show_list
from filaviva.errors import NotFound
from filaviva.operations.contract_shapes import contract as shown
from filaviva.registry import Registered, Registry

app = typer.Typer(
    help="See what is published in the registry.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command()(asyncapi.asyncapi)
app.command("in-flight")(in_flight.in_flight)
app.command()(uses.uses)

_COLUMNS = (
    "type",
    "version",
    "app",
    "queue",
    "maxAttempts",
    "timeout",
    "readAs",
    "sunset",
    "deprecated",
)


@app.command("list")
def list_contracts(*, json: Json = False) -> None:
    """List every version of every contract."""
    items = [shown(contract) for contract in acting.on_engine(_published)]
    if json:
        show_json({"items": items, "next": None})
    else:
        show_list([{**item, **item["policy"]} for item in items], _COLUMNS)


@app.command()
def export(
    job_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="Default: every type.")
    ] = None,
    *,
    version: Annotated[int | None, typer.Option(help="Default: every version.")] = None,
    to: Annotated[Path | None, typer.Option(help="A folder: one file per version.")] = None,
) -> None:
    """Print the JSON Schemas, or write TYPE.vN.json files (and TYPE.vN.result.json)."""
    found = [
        contract
        for contract in acting.on_engine(_published)
        if job_type in (None, contract.type) and version in (None, contract.version)
    ]
    if not found:
        wanted = f"{job_type or 'at all'}{'' if version is None else f' v{version}'}"
        raise NotFound(f"found no contract {wanted}; `filaviva contracts list` shows what exists")
    if to is None:
        show_json([{**shown(contract), **_schemas(contract)} for contract in found])
        return
    for contract in found:
        _write(contract, to)


async def _published(engine: AsyncEngine) -> list[Registered]:
    registry = Registry(engine)
    await registry.refresh()
    return registry.all()


def _schemas(contract: Registered) -> dict[str, Any]:
    return {"schema": contract.schema, "resultSchema": contract.result_schema}


def _write(contract: Registered, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{contract.type}.v{contract.version}"
    for suffix, schema in (("", contract.schema), (".result", contract.result_schema)):
        if schema is not None:
            path = folder / f"{name}{suffix}.json"
            text = json_text.dumps(schema, indent=2, ensure_ascii=False) + "\n"
            path.write_text(text, encoding="utf-8")
            typer.echo(str(path))
