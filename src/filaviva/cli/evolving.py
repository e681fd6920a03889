"""`filaviva contracts check|release|new-version|retire`: what the code may change, and how."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.app import load_app
from filaviva.cli import acting, exits, sampling
from filaviva.cli.here import environment
from filaviva.cli.output import DryRun, Json, show_json
from filaviva.errors import ConfigurationError
from filaviva.evolution.catalog import PARTS, Catalog, Key, catalog
from filaviva.evolution.change import Mode
from filaviva.evolution.findings import Finding, Judged, Released, Report
from filaviva.evolution.folder import Folder
from filaviva.evolution.gate import check as check_all
from filaviva.evolution.release import release as release_all
from filaviva.evolution.release import retire as retire_one
from filaviva.evolution.scaffold import begin, write
from filaviva.evolution.terms import Terms, read_terms
from filaviva.evolution.trial import Tried, tried
from filaviva.registry import Registered, Registry
from filaviva_contracts.names import event_of

Project = Annotated[
    Path, typer.Option(metavar="DIR", help="Where its pyproject.toml and contracts/ are.")
]
AppPath = Annotated[
    str,
    typer.Option(
        metavar="MODULE:APP", help="Default: what pyproject.toml says, or else FILAVIVA_APP."
    ),
]
Type = Annotated[str, typer.Argument(metavar="TYPE")]

HERE: Final = Path()


def opened(project: Path, app: str) -> tuple[Catalog, Folder, Terms]:
    """Load a project's code and files."""
    terms = read_terms(project)
    path = _app_path(project, app, terms)
    found = catalog(load_app(path) if path else None, terms.modules)
    return found, Folder.open(terms.folder), terms


def _app_path(project: Path, app: str, terms: Terms) -> str:
    path = app or terms.app or ("" if terms.modules else environment().get("FILAVIVA_APP", ""))
    if not path and not terms.modules:
        raise ConfigurationError(
            "FILAVIVA_APP: found nothing, expected package.module:attribute; or name the app in "
            f"{project / 'pyproject.toml'}: [tool.filaviva.contracts] app = …"
        )
    return path


def check(  # noqa: PLR0913 - Typer reads the options from the signature
    *,
    project: Project = HERE,
    app: AppPath = "",
    mode: Annotated[
        Mode | None, typer.Option(help="What has to stay possible. Default: FULL_TRANSITIVE.")
    ] = None,
    against_registry: Annotated[
        bool,
        typer.Option("--against-registry", help="Also compare with what setup has published."),
    ] = False,
    against_samples: Annotated[
        bool,
        typer.Option("--against-samples", help="Also try what was really sent, as workers saw it."),
    ] = False,
    samples: Annotated[
        Path | None,
        typer.Option(help="A file of `filaviva contracts samples --json`. Default: the database."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare the code's contracts with what was released: a verdict for every change.

    Exit code 4: a change would break what is on its way, or a file is not as it should be.
    """
    found, folder, terms = opened(project, app)
    if mode is not None:
        terms = terms.model_copy(update={"mode": mode, "modes": {}})
    published = _published() if against_registry else []
    report = check_all(found, folder, terms, published)
    sampled = samples is not None or against_samples
    flawed = tried(found, sampling.kept(samples)) if sampled else []
    if json:
        show_json({**_content(report), **({"samples": _flawed(flawed)} if sampled else {})})
    else:
        _show(report)
        sampling.show(flawed)
    if not report.passes or any(each.certain for each in flawed):
        raise typer.Exit(exits.REFUSED)


def _published() -> list[Released]:
    return [
        Released((event_of(each.type), each.version), part, "the registry", schema)
        for each in acting.on_engine(registered)
        for part, schema in zip(PARTS, (each.schema, each.result_schema), strict=True)
        if schema is not None and (part == "data" or each.event is None)
    ]


async def registered(engine: AsyncEngine) -> list[Registered]:
    """Read what setup has published."""
    registry = Registry(engine)
    await registry.refresh()
    return registry.all()


def release(*, project: Project = HERE, app: AppPath = "", dry_run: DryRun = False) -> None:
    """Freeze the drafts: from now on their versions may only be widened."""
    found, folder, terms = opened(project, app)
    frozen = release_all(found, folder, check_all(found, folder, terms), dry_run=dry_run)
    for path in frozen:
        typer.echo(f"{'would freeze' if dry_run else 'frozen'}  {path}")
    if not frozen:
        typer.echo("nothing to release: no draft")


def new_version(
    job_type: Type, *, project: Project = HERE, app: AppPath = "", dry_run: DryRun = False
) -> None:
    """Begin the next version of a contract: model, upcaster, golden message and test."""
    terms = read_terms(project)
    path = _app_path(project, app, terms)
    loaded = load_app(path) if path else None
    folder = Folder.open(terms.folder)
    begun = begin(job_type, catalog(loaded, terms.modules), folder, terms, loaded, path)
    names = [*map(str, begun.files), *(str(folder.root / name) for name in begun.goldens)]
    for name in names if dry_run else write(begun, folder):
        typer.echo(f"{'would write' if dry_run else 'written'}  {name}")
    for number, step in enumerate(begun.steps, 1):
        typer.echo(f"next {number}: {step}")


def retire(
    job_type: Type,
    version: Annotated[int, typer.Argument(metavar="VERSION")],
    *,
    reason: Annotated[str, typer.Option(help="Why nothing of it is left.")],
    project: Project = HERE,
    app: AppPath = "",
) -> None:
    """Let go of a released version that nothing reads any more; its files stay."""
    found, folder, _ = opened(project, app)
    retire_one(found, folder, (job_type, version), reason)
    typer.echo(f"retired  {job_type} v{version}")


def _show(report: Report) -> None:
    for each in report.judged:
        _show_change(each)
    for finding in report.findings:
        typer.echo(f"wrong    {finding.found}")
        typer.echo(f"         next: {finding.next_step}")
    for key in report.drafts:
        typer.echo(f"draft    {_name(key)}: may change until it is released")
    for name in report.unfrozen:
        typer.echo(f"draft    {name}: may change until it is released")
    if report.passes:
        number = len(report.checked)
        checked = f"{number} version{'' if number == 1 else 's'} checked"
        typer.echo(f"{checked}: all that was sent can be read")
    else:
        typer.echo("this would break what is on its way", err=True)


def _show_change(each: Judged) -> None:
    word = "refused" if each.refused else "waived" if each.reasons else "safe"
    change = each.change
    where = f"{change.path} " if change.path else ""
    part = " result" if each.part == "result" else ""
    name = f"{_name(each.key)}{part}"
    typer.echo(f"{word:<8} {name}: {where}{change.what}")
    typer.echo(f"         at {change.pointer or '/'}, since {each.against}")
    for direction, reason in (("BACKWARD", change.backward), ("FORWARD", change.forward)):
        if reason in each.reasons:
            typer.echo(f"         {direction}: {reason}")
    if each.waived is not None:
        typer.echo(f"         waived: {each.waived}")
    if each.next_step is not None:
        typer.echo(f"         next: {each.next_step}")


def _content(report: Report) -> dict[str, Any]:
    return {
        "passes": report.passes,
        "checked": [_named(key) for key in report.checked],
        "drafts": [_named(key) for key in report.drafts],
        "changes": [_change(each) for each in report.judged],
        "findings": [_finding(each) for each in report.findings],
        "unfrozen": list(report.unfrozen),
    }


def _change(each: Judged) -> dict[str, Any]:
    change = each.change
    return {
        **_named(each.key),
        "part": each.part,
        "against": each.against,
        "mode": each.mode,
        "kind": change.kind,
        "path": change.path,
        "pointer": change.pointer,
        "what": change.what,
        "backward": change.backward,
        "forward": change.forward,
        "refused": each.refused,
        "waived": each.waived,
        "nextStep": each.next_step,
    }


def _finding(each: Finding) -> dict[str, Any]:
    named = {"type": None, "version": None} if each.key is None else _named(each.key)
    return {**named, "found": each.found, "nextStep": each.next_step}


def _named(key: Key) -> dict[str, Any]:
    return {"type": key[0], "version": key[1]}


def _name(key: Key) -> str:
    return f"{key[0]} v{key[1]}"


def _flawed(found: list[Tried]) -> list[dict[str, Any]]:
    return [
        {
            **_named(each.sample.key),
            "seen": each.sample.seen,
            "certain": [{"pointer": flaw.pointer, "detail": flaw.detail} for flaw in each.certain],
            "possible": [
                {"pointer": flaw.pointer, "detail": flaw.detail} for flaw in each.possible
            ],
            "outline": each.sample.outline,
        }
        for each in found
    ]
