"""`filaviva contracts`: what setup has published, what the code defines, and what may change."""

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from filaviva.cli import acting, asyncapi, catalogue, evolving, in_flight, sampling, uses
from filaviva.cli.output import Json, show_json, show_list
from filaviva.errors import NotFound
from filaviva.evolution.release import export as write_all
from filaviva.evolution.writing import write_text
from filaviva.operations.contract_shapes import contract as shown
from filaviva.registry import Registered

app = typer.Typer(
    help="See what is published; check, release and evolve what the code defines.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command()(evolving.check)
app.command()(evolving.release)
app.command("new-version")(evolving.new_version)
app.command()(evolving.retire)
app.command()(sampling.samples)
app.command()(asyncapi.asyncapi)
app.command()(catalogue.link)
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
    items = [shown(contract) for contract in acting.on_engine(evolving.registered)]
    if json:
        show_json({"items": items, "next": None})
    else:
        show_list([{**item, **item["policy"]} for item in items], _COLUMNS)


@app.command()
def export(  # noqa: PLR0913 - Typer reads the options from the signature
    job_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="With --published. Default: every type.")
    ] = None,
    *,
    project: evolving.Project = evolving.HERE,
    app: evolving.AppPath = "",
    published: Annotated[
        bool, typer.Option("--published", help="Print what is in the registry instead.")
    ] = False,
    version: Annotated[
        int | None, typer.Option(help="With --published. Default: every version.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="With --published. A folder: TYPE.vN.json files.")
    ] = None,
) -> None:
    """Write the JSON Schemas of the code's contracts to contracts/schemas/, with golden messages.

    What is released is never written over: it is widened, or exit code 4 says why not.
    """
    if published:
        _export_published(job_type, version, to)
    elif job_type is not None or version is not None or to is not None:
        raise typer.BadParameter("TYPE, --version and --to go with --published")
    else:
        _export_code(project, app)


def _export_code(project: Path, app_path: str) -> None:
    found, folder, terms = evolving.opened(project, app_path)
    written = write_all(found, folder, terms)
    for path in written.kept:
        typer.echo(f"kept     {path}")
    for path in written.paths:
        typer.echo(f"written  {path}")
    if not written.paths:
        typer.echo("the files are what the code says")


def _export_published(job_type: str | None, version: int | None, to: Path | None) -> None:
    found = [
        contract
        for contract in acting.on_engine(evolving.registered)
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


def _schemas(contract: Registered) -> dict[str, Any]:
    return {"schema": contract.schema, "resultSchema": contract.result_schema}


def _write(contract: Registered, folder: Path) -> None:
    name = f"{contract.type}.v{contract.version}"
    for suffix, schema in (("", contract.schema), (".result", contract.result_schema)):
        if schema is not None:
            path = folder / f"{name}{suffix}.json"
            text = json_text.dumps(schema, indent=2, ensure_ascii=False) + "\n"
            write_text(path, text)
            typer.echo(str(path))
