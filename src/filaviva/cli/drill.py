"""`filaviva drill`: cut a provider on the running stack and check what is promised about it."""

import asyncio
import json as jsonlib
import signal
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from filaviva.cli import acting, here
from filaviva.cli.drill_screen import DrillScreen
from filaviva.cli.exits import FAILED
from filaviva.cli.output import Json, Yes, ask, show_json
from filaviva.database import redacted
from filaviva.dev import slack
from filaviva.dev.command import DEFAULT_STATE
from filaviva.dev.detached import detached
from filaviva.dev.lock import exclusive_lock
from filaviva.dev.readiness import NotReady
from filaviva.drilling.drill import Report, drill
from filaviva.drilling.plan import (
    FULL_SECONDS,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    Observers,
    Plan,
    Scraped,
)
from filaviva.errors import ConfigurationError, FilavivaError, Rejected
from filaviva.settings import DrillSettings, FromEnvironment, PostgresSettings, read

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_INTERRUPTED: Final = 130
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_EMPTY_APP: Final = "filaviva.drill.alone:app"
_STACK: Final = DEFAULT_STATE / "drill"

Seconds = Annotated[
    float,
    typer.Option(min=SHORTEST_SECONDS, max=LONGEST_SECONDS, help="How long the provider is away."),
]
Listen = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="Where to serve the provider; as FILAVIVA_DRILL__PROVIDER_URL says by default.",
    ),
]
Api = Annotated[str, typer.Option(metavar="URL", help="The producer's API.")]
PrometheusUrl = Annotated[
    str, typer.Option("--prometheus", metavar="URL", help="The platform's Prometheus.")
]
AlertmanagerUrl = Annotated[
    str,
    typer.Option("--alertmanager", metavar="URL", help="Its Alertmanager; by default it is asked."),
]
Start = Annotated[
    bool,
    typer.Option("--start", help="Where no stack runs here, start one for the drill and end it."),
]
AppName = Annotated[
    str | None,
    typer.Option("--app", envvar="FILAVIVA_APP", help="What a stack that is started serves, too."),
]


class DrillEnvironment(FromEnvironment):
    """What a drill needs to know of the stack."""

    postgres: PostgresSettings
    drill: DrillSettings = DrillSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of the command."""

    seconds: float
    listen: str = ""
    api: str = ""
    prometheus: str = ""
    alertmanager: str = ""


@app.command(name="drill")
def drill_(  # noqa: PLR0913 - one argument per option of the command
    *,
    seconds: Seconds = FULL_SECONDS,
    listen: Listen = "",
    api: Api = "",
    prometheus: PrometheusUrl = "",
    alertmanager: AlertmanagerUrl = "",
    start: Start = False,
    app_name: AppName = None,
    json: Json = False,
    yes: Yes = False,
) -> None:
    """Cut the drill's own provider for a while, on the running stack, and check what follows.

    Its jobs, dead letters, alerts and Slack messages are real; nobody else's handlers are touched.
    Exit code 0 only if every fact holds.
    """
    wishes = Wishes(
        seconds=seconds,
        listen=listen,
        api=api.rstrip("/"),
        prometheus=prometheus.rstrip("/"),
        alertmanager=alertmanager.rstrip("/"),
    )
    screen = DrillScreen(sys.stderr if json else sys.stdout)
    if start and not _runs_here():
        screen.say("no stack runs in this folder: starting one for the drill ...")
        work = _on_own_stack(wishes, app_name or _EMPTY_APP, screen)
    else:
        plan = _plan(wishes, here.environment(), DEFAULT_STATE)
        # Nobody is on call for the stack of this folder; elsewhere people hear of it.
        agreed = yes or (start and plan.scraped is not None)
        ask(f"Cut the drill's provider for {seconds:g} s on {redacted(plan.database)}?", yes=agreed)
        work = acting.guarded(drill(plan, screen), plan.database)
    report = _run(work, screen)
    if json:
        show_json(report.shown())
    else:
        screen.facts(report.facts)
        _conclude(report, screen)
    if not report.passed:
        raise typer.Exit(FAILED)


def _run(work: Coroutine[Any, Any, Report], screen: DrillScreen) -> Report:
    async def stoppable() -> Report:
        task = asyncio.current_task()
        if task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return acting.run(stoppable())
    except NotReady as why:
        raise FilavivaError(str(why)) from why
    except (KeyboardInterrupt, asyncio.CancelledError):
        screen.say("interrupted; everything that the drill had begun has ended")
        raise typer.Exit(_INTERRUPTED) from None


async def _on_own_stack(wishes: Wishes, app_name: str, screen: DrillScreen) -> Report:
    """Drill on a stack that runs for that alone, with a stand-in for Slack."""
    state = _STACK.absolute()
    with exclusive_lock(state.with_name(f"{state.name}.lock")) as ours, slack.stand_in() as inbox:
        if not ours:
            detail = f"another drill runs on a stack of its own in {_STACK}: wait for its end"
            raise Rejected("conflict", detail, status=409)
        added = {"FILAVIVA_SLACK__WEBHOOK_URL": inbox.url}
        async with detached(state, app=app_name, workers=2, added=added) as facts:
            told = jsonlib.loads(facts.read_text(encoding="utf-8"))
            environment = {
                "FILAVIVA_POSTGRES__URL": told["postgres"],
                "FILAVIVA_DRILL__API_URL": told["api"],
                "FILAVIVA_DRILL__PROVIDER_URL": told["drillProvider"],
            }
            plan = _plan(wishes, environment, state, told["metrics"])
            screen.say(f"the stack runs in {_STACK}, with a stand-in for Slack")
            report = await acting.guarded(drill(plan, screen, slack=inbox), plan.database)
            screen.say("ending the stack ...")
    return report


def _plan(
    wishes: Wishes,
    environment: Mapping[str, str],
    state: Path,
    metrics: Mapping[str, list[str]] | None = None,
) -> Plan:
    settings = read(DrillEnvironment, environment)
    known, database = settings.drill, settings.postgres.url.get_secret_value()
    host, port = _place(wishes.listen, known.provider_url)
    api = wishes.api or known.api_url
    if not api:
        raise ConfigurationError(
            "--api: found nothing, expected where the producer's API is, such as "
            "http://producer:8080 (or FILAVIVA_DRILL__API_URL)"
        )
    scraped = here.metrics(database) if metrics is None else metrics
    return Plan(
        database=database,
        api=api,
        host=host,
        port=port,
        author=f"cli:{acting.author()}",
        seconds=wishes.seconds,
        observers=_observers(wishes, known),
        scraped=Scraped(dict(scraped), state.absolute() / "observers") if scraped else None,
    )


def _observers(wishes: Wishes, known: DrillSettings) -> Observers:
    prometheus = wishes.prometheus or known.prometheus_url
    alertmanager = wishes.alertmanager or known.alertmanager_url
    if alertmanager and not prometheus:
        raise ConfigurationError(
            f"--alertmanager: found {alertmanager!r} alone, expected the Prometheus that tells it "
            "beside it: --prometheus URL (or FILAVIVA_DRILL__PROMETHEUS_URL)"
        )
    return Observers(prometheus, alertmanager)


def _place(listen: str, provider: str) -> tuple[str, int]:
    """Give where the provider listens: as asked, or where workers look for it."""
    wanted = urlsplit(f"//{listen}" if listen else provider)
    try:
        host, port = wanted.hostname, wanted.port
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        name, found = ("--listen", listen) if listen else ("FILAVIVA_DRILL__PROVIDER_URL", provider)
        raise ConfigurationError(
            f"{name}: found {found or 'nothing'!r}, expected a host and a port, such as "
            "0.0.0.0:9200: where FILAVIVA_DRILL__PROVIDER_URL leads the workers to"
        )
    # The name by which others know this machine is not always an address of its own.
    return (host if listen or host in _LOOPBACK else "0.0.0.0"), port  # noqa: S104


def _runs_here() -> bool:
    known = here.environment()
    return any(known.get(f"FILAVIVA_POSTGRES__URL{end}") for end in ("", "_FILE"))


def _conclude(report: Report, screen: DrillScreen) -> None:
    wrong = sum(not fact.holds for fact in report.facts)
    if wrong:
        screen.say(f"the drill has not passed: {wrong} of {len(report.facts)} facts do not hold")
    else:
        screen.say(f"the drill has passed: all {len(report.facts)} facts hold")
