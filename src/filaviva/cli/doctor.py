"""`filaviva doctor`: what is wrong, and the next step."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

import typer

from filaviva.cli import acting
from filaviva.cli.exits import FAILED
from filaviva.cli.here import environment
from filaviva.cli.output import Json, printable, show_json
from filaviva.monitoring import deployed
from filaviva.operations.doctor import Addresses, Finding, examine, healthy
from filaviva.operations.doctor.finding import Level
from filaviva.operations.doctor.production import Asked, examine_production
from filaviva.settings import Settings, read

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_MARKS: Final = {"ok": "ok", "attention": "look", "wrong": "WRONG", "unknown": "?"}
_WORDS: Final[Mapping[Level, str]] = {
    "wrong": "stand in the way of production",
    "attention": "ask for a look",
    "unknown": "could not be looked at",
    "ok": "are well",
}
_WIDEST: Final = 50  # of the names: one that is longer moves only its own line
_ONLY: Final = "Of --production: "


@app.command()
def doctor(  # noqa: PLR0913 - one argument per option of the command
    *,
    production: Annotated[
        bool, typer.Option("--production", help="Go through the list for production too.")
    ] = False,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help=f"{_ONLY}ask it for our jobs, rules and the watchdog."),
    ] = None,
    send_test_alert: Annotated[
        bool,
        typer.Option(
            "--send-test-alert", help=f"{_ONLY}let the dlq-handler send one message, marked so."
        ),
    ] = False,
    send_job_twice: Annotated[
        bool,
        typer.Option(
            "--send-job-twice",
            help=f"{_ONLY}submit one job twice over HTTP, see that it is one, cancel it.",
        ),
    ] = False,
    api: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"{_ONLY}the producer, for --send-job-twice. Default: FILAVIVA_DRILL__API_URL.",
        ),
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help=f"{_ONLY}compare what is released there with what is published."
        ),
    ] = None,
    stop_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help=f"{_ONLY}what your orchestrator gives a worker from SIGTERM to SIGKILL."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Look at broker, database, workers, outbox, leases, dead letters and alerts.

    Exit code 1 if something stands in the way of work, or with --production of the first job.
    """
    settings = read(Settings, environment())
    given = (prometheus, project, api, stop_seconds)
    alone = send_test_alert or send_job_twice or any(each is not None for each in given)
    if alone and not production:
        raise typer.BadParameter("expected --production beside this option")
    asked = Asked(
        author=acting.author(),
        alerts=deployed.alerts() if production else frozenset(),
        prometheus=prometheus or settings.drill.prometheus_url or None,
        project=project,
        api=api or settings.drill.api_url or settings.links.base_url or None,
        stop_seconds=stop_seconds,
        send_test_alert=send_test_alert,
        send_job_twice=send_job_twice,
    )
    findings = acting.run(_look(settings, asked if production else None))
    if json:
        show_json({"healthy": healthy(findings), "findings": [_shown(each) for each in findings]})
    else:
        _print(findings, production=production)
    if not healthy(findings):
        raise typer.Exit(FAILED)


async def _look(settings: Settings, asked: Asked | None) -> list[Finding]:
    management = settings.broker.management_url
    url = settings.postgres.url.get_secret_value()
    addresses = Addresses(
        settings.broker.url.get_secret_value(),
        None if management is None else management.get_secret_value(),
    )
    found = await examine(url, addresses, lease_seconds=settings.worker.lease_seconds)
    return found if asked is None else found + await examine_production(url, addresses, asked)


def _print(findings: Sequence[Finding], *, production: bool) -> None:
    width = min(max(len(finding.check) for finding in findings), _WIDEST)
    for group, members in groupby(findings, key=lambda finding: finding.group):
        if production:
            typer.echo(f"\n{group or 'now'}")
        for finding in members:
            for line in _lines(finding, width):
                typer.echo(printable(line))
    if production:
        typer.echo(f"\n{_counted(findings)}")


def _lines(finding: Finding, width: int) -> Iterator[str]:
    mark = _MARKS[finding.level]
    yield f"{mark:<5}  {finding.check.ljust(width)}  {finding.found}"
    below = f"{'':<5}  {'':<{width}}"
    if finding.expected is not None:
        yield f"{below}  expected: {finding.expected}"
    if finding.next_step is not None:
        yield f"{below}  next: {finding.next_step}"


def _counted(findings: Sequence[Finding]) -> str:
    levels = [finding.level for finding in findings]
    counts = ((levels.count(level), words) for level, words in _WORDS.items())
    return ", ".join(f"{count} {words}" for count, words in counts if count)


def _shown(finding: Finding) -> dict[str, str | None]:
    return {
        "group": finding.group,
        "check": finding.check,
        "level": finding.level,
        "found": finding.found,
        "expected": finding.expected,
        "nextStep": finding.next_step,
    }
