"""Prometheus and Alertmanager of a drill: the platform's, or our own for a stack that has none."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from filaviva.database import redacted
from filaviva.dev import slack
from filaviva.dev.alertmanager import embedded_alertmanager
from filaviva.dev.child import recover
from filaviva.dev.packages import Missing
from filaviva.dev.prometheus import embedded_prometheus
from filaviva.dev.readiness import NotReady, wait_until
from filaviva.dev.slack import Inbox
from filaviva.drilling.alertmanager import Alertmanagers
from filaviva.drilling.plan import FULL_SECONDS, Plan, Scraped
from filaviva.drilling.prometheus import ALERT, Prometheus
from filaviva.errors import ConfigurationError
from filaviva.monitoring import deployed
from filaviva.monitoring.shortened import shortened

_PATIENCE: Final = timedelta(seconds=30)
_SCRAPE_SECONDS: Final = 2.0
_QUICKEST_SCRAPE: Final = 0.5
_GLANCE: Final = 0.1
_UNNAMED: Final = "name them: --prometheus URL (and --alertmanager URL, if it does not tell)"


@dataclass(frozen=True, slots=True)
class Observing:
    """Who can be asked; what is None is not there, and `why` says so."""

    prometheus: Prometheus | None = None
    interval: float = 15.0
    inbox: Inbox | None = None  # our Alertmanager's Slack
    alertmanagers: Alertmanagers | None = None
    note: str = ""
    why: str | None = None
    next_step: str | None = None


@asynccontextmanager
async def observing(plan: Plan, inbox: Inbox | None) -> AsyncIterator[Observing]:
    """Find or start them; whatever was started ends with the block."""
    async with AsyncExitStack() as stack:
        if plan.observers.prometheus:
            yield await _theirs(plan, stack)
        elif plan.scraped is None:
            yield Observing(why="no Prometheus was named", next_step=_UNNAMED)
        else:
            yield await _ours(plan, plan.scraped, inbox, stack)


async def _theirs(plan: Plan, stack: AsyncExitStack) -> Observing:
    prometheus = Prometheus(plan.observers.prometheus)
    stack.push_async_callback(prometheus.close)
    if not await prometheus.has_rule():
        raise ConfigurationError(
            f"Prometheus at {prometheus.place}: found no alert {ALERT}, expected the rules of "
            "deploy/prometheus/rules in its rule_files"
        )
    if not await prometheus.scraped():
        raise ConfigurationError(
            f"Prometheus at {prometheus.place}: found no figures of the drill's jobs, expected it "
            "to scrape the workers that have FILAVIVA_DRILL__PROVIDER_URL"
        )
    named = plan.observers.alertmanager
    urls = [named] if named else await prometheus.alertmanagers()
    interval, note = await prometheus.interval(), f"Prometheus at {prometheus.place}"
    if not urls:
        return Observing(prometheus, interval, note=f"{note}, no Alertmanager")
    alertmanagers = Alertmanagers(urls)
    stack.push_async_callback(alertmanagers.close)
    await alertmanagers.sent()  # whoever does not answer is named now, not after the cut
    note = f"{note}, Alertmanager at {', '.join(map(redacted, urls))}"
    return Observing(prometheus, interval, alertmanagers=alertmanagers, note=note)


async def _ours(
    plan: Plan, scraped: Scraped, inbox: Inbox | None, stack: AsyncExitStack
) -> Observing:
    recover(scraped.folder)
    told = inbox or stack.enter_context(slack.stand_in())
    interval = max(_SCRAPE_SECONDS * plan.share, _QUICKEST_SCRAPE)
    try:
        prometheus = await _started(plan, scraped, told, interval, stack)
    except (Missing, NotReady) as why:
        step = "install them: `make servers` as root, or apt-get install prometheus"
        return Observing(why=str(why), next_step=f"{step} prometheus-alertmanager")
    note = "Prometheus and Alertmanager of the drill's own, with the committed rules"
    if plan.share < 1:
        note += f", windows shortened to {plan.seconds:g}/{FULL_SECONDS:g} of theirs"
    return Observing(prometheus, interval, inbox=told, note=note)


async def _started(
    plan: Plan, scraped: Scraped, inbox: Inbox, interval: float, stack: AsyncExitStack
) -> Prometheus:
    alertmanager = embedded_alertmanager(
        scraped.folder, deployed.text(deployed.ALERTMANAGER), webhook=inbox.url
    )
    stack.callback(alertmanager.stop)
    alertmanager.launch()
    rules = deployed.rules()
    if plan.share < 1:
        rules = {name: shortened(text, plan.share) for name, text in rules.items()}
    target = urlsplit(alertmanager.url).netloc
    server = embedded_prometheus(
        scraped.folder, _configuration(scraped.metrics, target, interval), rules
    )
    stack.callback(server.stop)
    server.launch()
    for each in (alertmanager, server):
        what = f"{each.child.name} ({each.child.log})"
        await asyncio.to_thread(wait_until, each.ready, patience=_PATIENCE, what=what)
    prometheus = Prometheus(server.url)
    stack.push_async_callback(prometheus.close)
    await _scraping(prometheus)
    return prometheus


async def _scraping(prometheus: Prometheus) -> None:
    """Wait until everything was scraped: what is not seen before the cut did not change in it."""
    until = time.monotonic() + _PATIENCE.total_seconds()
    while not (await prometheus.everything_is_up() and await prometheus.scraped()):
        if time.monotonic() > until:
            raise NotReady("Prometheus does not reach the metrics of every service")
        await asyncio.sleep(_GLANCE)


def _configuration(
    metrics: Mapping[str, list[str]], alertmanager: str, interval: float
) -> dict[str, Any]:
    every = f"{round(1000 * interval)}ms"
    return {
        "global": {
            "scrape_interval": every,
            "evaluation_interval": every,
            "external_labels": {"runbooks": "docs/runbooks"},
        },
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {
                "job_name": service,
                "static_configs": [
                    {
                        "targets": [urlsplit(url).netloc for url in urls],
                        "labels": {"app": "filaviva"},
                    }
                ],
            }
            for service, urls in metrics.items()
        ],
    }
