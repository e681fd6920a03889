"""`filaviva doctor`: what is wrong, and the next step."""

from typing import Final

import typer

from filaviva.cli import acting
from filaviva.cli.exits import FAILED
from filaviva.cli.here import environment
from filaviva.cli.output import Json, show_json
from filaviva.operations.doctor import Addresses, Finding, examine, healthy
from filaviva.settings import Settings, read

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_MARKS: Final = {"ok": "ok", "attention": "look", "wrong": "WRONG", "unknown": "?"}


@app.command()
def doctor(*, json: Json = False) -> None:
    """Look at broker, database, workers, outbox, leases, dead letters and alerts.

    Exit code 1 if something stands in the way of work.
    """
    settings = read(Settings, environment())
    management = settings.broker.management_url
    url = settings.postgres.url.get_secret_value()
    addresses = Addresses(
        settings.broker.url.get_secret_value(),
        None if management is None else management.get_secret_value(),
    )
    findings = acting.run(examine(url, addresses, lease_seconds=settings.worker.lease_seconds))
    if json:
        show_json({"healthy": healthy(findings), "findings": [_shown(each) for each in findings]})
    else:
        _print(findings)
    if not healthy(findings):
        raise typer.Exit(FAILED)


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark = _MARKS[finding.level]
        typer.echo(f"{mark:<5}  {finding.check.ljust(width)}  {finding.found}")
        if finding.next_step is not None:
            typer.echo(f"{'':<5}  {'':<{width}}  next: {finding.next_step}")


def _shown(finding: Finding) -> dict[str, str | None]:
    return {
        "check": finding.check,
        "level": finding.level,
        "found": finding.found,
        "nextStep": finding.next_step,
    }
